"""What makes a Dataset stale, and what does not."""

import ast
import dataclasses
from pathlib import Path

import pytest

import recombine.papers.forced_rendering
from recombine.metrics.registry import FUNCTION_VERSIONS, STAGE_METRICS, STAGE_PROFILE
from recombine.papers.forced_rendering import PAPER as DEFAULT
from recombine.reproduction.reproduce import reproduce
from tests.tiny import TINY

STUDIES = DEFAULT.studies
PRESET = DEFAULT.preset_named("quick").changed([*TINY, "variances=1", "steps=2", "seeds=1"])
PACKAGE = Path(recombine.papers.forced_rendering.__file__).parent


def test_measured_again_only_when_what_it_depends_on_changes(tmp_path, monkeypatch):
    study = STUDIES["encoding_width"]

    def measured(*changes):
        lines = []
        reproduce(study, PRESET.changed(changes), tmp_path / "runs", tmp_path / "out", device="cpu", say=lines.append)
        return any(line.startswith("measured") for line in lines)

    assert measured()
    assert not measured()
    assert not measured("threshold_sizes=6,7", "depths=2")  # another study's settings
    assert measured("variances=1,7")
    assert measured()
    monkeypatch.setattr(type(study), "version", 2)
    assert measured()
    monkeypatch.setattr("recombine.reproduction.study.SCORES_VERSION", 99)
    assert measured()
    monkeypatch.setattr(type(study), "optional_tools", lambda study: ("a tool",))
    assert measured()


def test_a_metrics_version_stales_the_studies_that_use_it(monkeypatch):
    before = {name: study.versions for name, study in STUDIES.items()}
    monkeypatch.setitem(FUNCTION_VERSIONS, "stripe_superposition", 99)
    assert [name for name, study in STUDIES.items() if study.versions != before[name]] == ["stripes"]


def test_a_stage_metrics_version_stales_the_studies_that_profile_stages(monkeypatch):
    before = {name: study.versions for name, study in STUDIES.items()}
    monkeypatch.setitem(STAGE_METRICS, "tuning", dataclasses.replace(STAGE_METRICS["tuning"], version=99))
    changed = [name for name, study in STUDIES.items() if study.versions != before[name]]
    assert changed == [name for name, study in STUDIES.items() if STAGE_PROFILE in study.metrics] != []


def used_metrics(module, names, seen):
    """Functions of metrics and theory, and the profile, that some definitions of a paper's module use, and what those
    call in the paper's other modules."""
    tree = ast.parse((PACKAGE / f"{module}.py").read_text())
    imports = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in tree.body if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }  # fmt: skip
    defined = {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    found = set()
    for name in names:
        if (module, name) in seen:
            continue
        seen.add((module, name))
        source, own = imports.get(name, ("", name))
        if name in defined:
            walked = list(ast.walk(defined[name]))
            inner = {node.id for node in walked if isinstance(node, ast.Name)}
            dotted = {
                f"{node.value.id}.{node.attr}"
                for node in walked
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
            }
            found |= used_metrics(module, inner | dotted, seen)
        elif "." in name:  # of a module that is imported as a whole
            owner, _, own = name.partition(".")
            if imports.get(owner) == ("recombine", "metrics"):
                found.add(own)
            elif imports.get(owner) == ("recombine.reproduction", "measuring"):
                found |= {own} & {STAGE_PROFILE}
            elif imports.get(owner, ("",))[0] == recombine.papers.forced_rendering.__name__:
                found |= used_metrics(imports[owner][1], [own], seen)
        elif source == "recombine.metrics" or source.startswith("recombine.theory."):
            found |= {own} if own.islower() else set()
        elif source == "recombine.reproduction.measuring":
            found |= {own} & {STAGE_PROFILE}
        elif source.startswith(f"{recombine.papers.forced_rendering.__name__}."):
            found |= used_metrics(source.rpartition(".")[2], [own], seen)
    return found


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_declares_the_metrics_that_it_uses(name):
    used = used_metrics(name, [type(STUDIES[name]).__name__], set())
    assert set(STUDIES[name].metrics) - set(STAGE_METRICS) == used - set(STAGE_METRICS)


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_reads_only_the_settings_that_it_declares(name):
    study = STUDIES[name]
    own = study.settings(**study.own_settings(PRESET.model_dump()))
    assert [spec.digest for spec in study.specs(own)] == [spec.digest for spec in study.specs(PRESET)]
    assert set(study.settings.model_fields) < set(DEFAULT.preset.model_fields)
