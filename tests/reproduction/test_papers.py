"""Another study costs a few modules and one line; another paper one package with an entry point."""

import importlib
import json
import pickle
import sys

import pytest
from matplotlib import pyplot

from recombine.errors import InvalidValue
from recombine.papers.forced_rendering import PAPER as DEFAULT
from recombine.reproduction import installed
from recombine.reproduction.paper import Findings
from recombine.reproduction.reporting import write_report
from recombine.reproduction.reproduce import reproduce
from tests.command import run

PAPER = """
from recombine.reproduction.paper import Paper

QUESTIONS = (
{lines}
)
PAPER = Paper.assemble(__name__, QUESTIONS, title="A toy", source="nowhere", question="Does it learn?")
"""
STUDY = """
from typing import ClassVar

from recombine.decoders import MLP
from recombine.reproduction.measuring import tabulate
from recombine.reproduction.preset import Count, Preset
from recombine.reproduction.study import Arm, Study
from recombine.specs import RunSpec
from recombine.tasks import BumpTask


class Settings(Preset):
    name: str = "whole"
    seeds: int = 4
    extra_seeds: int = 1
    first_seed: Count = 0
    precision: str = "float32"
    {name}_steps: Count = 4
    variants: ClassVar = {{"small": {{"seeds": 3, "{name}_steps": 2}}}}


class ToyStudy(Study[Settings]):
    name = "{name}"
    question = "Does it learn?"
    settings = Settings

    def arms(self, preset):
        task = BumpTask(size=6, training="draws:8")
        recipe = preset.recipe(steps=preset.{name}_steps, batch=4)
        return [Arm(("mlp",), RunSpec(task=task, decoder=MLP(width=4, depth=1), recipe=recipe))]

    def measure(self, trials):
        return tabulate(trials, ("arm",), lambda batch: batch.scores)


STUDY = ToyStudy()
"""
CLAIMS = """
import numpy as np

from recombine.reproduction.claims import Claim, Statement
from recombine.reproduction.criteria import Fit, above
from recombine.reproduction.claims import Sample


def errors(data):
    values = data["{name}"]["id_mse"].sel(arm="mlp").values
    return {{"mlp": Sample(values, (Fit.known(np.isfinite(values)),))}}


CLAIMS = (Claim("T{number}", "It learns {name}", "§1", (Statement(above("error", 0.0), errors),), ("{name}",)),)
"""
FIGURE = """
from matplotlib import pyplot

from recombine.reproduction.figures import FigureSpec


def draw(result):
    figure, ax = pyplot.subplots()
    ax.plot(result["id_mse"].values.ravel(), "o")
    return figure


FIGURES = (FigureSpec("fig{number}", "Errors", ("{name}",), draw, lambda result: f"{{result.sizes['seed']}} seeds."),)
"""

EXPLORER = """
from recombine.reproduction.live_decoders import DecoderChoice, LabelledSpec
from toy_paper.{name} import STUDY


def decoders(preset):
    return [LabelledSpec("{name}", arm.spec, {{"decoder": "mlp"}}) for arm in STUDY.arms(preset)]


EXPLORER = DecoderChoice(decoders, learnt=lambda run: True)
"""
ENTRY = "[recombine.papers]\ntoy_paper = toy_paper:PAPER\n"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Writes a paper with some questions, each three modules and a line; the paper."""
    monkeypatch.syspath_prepend(tmp_path)

    def paper(*names):
        folder = tmp_path / "toy_paper"
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").write_text(PAPER.format(lines="\n".join(f'    "{name}",' for name in names)))
        for number, name in enumerate(names, start=1):
            for kind, text in {"": STUDY, "_claims": CLAIMS, "_figure": FIGURE}.items():
                (folder / f"{name}{kind}.py").write_text(text.format(name=name, number=number))
        (folder / "explorer.py").write_text(EXPLORER.format(name=names[0]))
        installed_as = tmp_path / "toy_paper-1.0.dist-info"
        installed_as.mkdir(exist_ok=True)
        (installed_as / "METADATA").write_text("Metadata-Version: 2.1\nName: toy_paper\nVersion: 1.0\n")
        (installed_as / "entry_points.txt").write_text(ENTRY)
        for module in [name for name in sys.modules if name.partition(".")[0] == "toy_paper"]:
            del sys.modules[module]
        importlib.invalidate_caches()
        installed.paper.cache_clear()
        return importlib.import_module("toy_paper").PAPER

    yield paper
    for module in [name for name in sys.modules if name.partition(".")[0] == "toy_paper"]:
        del sys.modules[module]


def test_from_modules_and_a_line_to_the_page(package, tmp_path):
    names = ("errors", "more")
    paper = package(*names)
    assert list(paper.claims) == [f"T{number}" for number in range(1, len(names) + 1)]
    changes = ["seeds=8", *(f"{name}_steps=3" for name in names)]
    preset = paper.preset_named("small").changed(changes)
    places = (tmp_path / "runs", tmp_path / "out")
    results = reproduce(paper.selected(["all"]), preset, *places, device="cpu", paper=paper)
    text = write_report(Findings(paper, results)).read_text()
    verdicts = json.loads((tmp_path / "out" / "claims.json").read_text())
    assert {verdict["claim"]: verdict["described"] for verdict in verdicts} == dict.fromkeys(paper.claims, "yes")
    assert {verdict["timing"] for verdict in verdicts} == {"before the data"}
    for number, name in enumerate(names, start=1):
        assert f"It learns {name}" in text
        assert f'id="fig{number}"' in text
        assert (tmp_path / "out" / "figures" / f"fig{number}.svg").exists()
        assert f"{name} steps" in text
    assert "A toy" in text
    assert DEFAULT.title not in text


def test_presets_are_put_together_from_the_studies(package):
    paper = package("errors", "more")
    assert list(paper.presets) == ["small", "whole"]
    small = paper.presets["small"]
    assert (small.seeds, small.errors_steps, small.more_steps) == (3, 2, 2)
    assert paper.presets["whole"].errors_steps == 4
    for study in paper.studies.values():
        assert isinstance(small, study.settings)


def test_what_comes_twice_or_is_another_papers_is_refused(package, tmp_path):
    paper = package("errors")
    with pytest.raises(InvalidValue, match="study must be"):
        type(paper).assemble("toy_paper", ["errors", "errors"], title="", source="", question="")
    with pytest.raises(InvalidValue, match="one with the settings of errors"):
        reproduce(list(paper.studies.values()), DEFAULT.presets["quick"], tmp_path / "runs", tmp_path / "out")


def test_papers_are_known_by_name(package):
    assert installed.paper() is installed.paper(DEFAULT.name) is DEFAULT
    assert pickle.loads(pickle.dumps(DEFAULT.presets)) == DEFAULT.presets
    others = ["coordconv", "first_principles", "hidden_capabilities"]
    assert installed.paper_names() == [DEFAULT.name, *others]
    toy = package("errors")
    assert installed.paper_names() == [DEFAULT.name, *others, "toy_paper"]
    assert installed.paper("toy_paper") is toy
    with pytest.raises(InvalidValue, match=f"one of forced_rendering, {', '.join(others)}, toy_paper"):
        installed.paper("no_paper")


def test_every_command_takes_the_name_of_a_paper(package, tmp_path, capsys, blank_figures):
    package("errors")
    out, words = str(tmp_path / "out"), ["--paper", "toy_paper"]
    flags = ["--preset", "small", "--device", "cpu", "--processes", "1", "--store", str(tmp_path / "runs")]
    assert run("reproduce", *words, *flags, "--out", out) == 0
    assert run("claims", "T1", *words, "--from", out) == 0
    assert "It learns errors" in capsys.readouterr().out
    assert run("figure", "1", *words, "--from", out) == 0
    assert run("report", out, *words) == 0
    page = (tmp_path / "out" / "index.html").read_text()
    assert "A toy" in page
    assert "Drag the point into the hold-out" in page, "the explorer"
    assert "stripes" not in page
    capsys.readouterr()
    assert run("claims", "T1", "--from", out) == 2
    assert "claim must be one of C1" in capsys.readouterr().err


def test_a_figure_is_drawn_by_name_where_its_datasets_are_here(package, tmp_path):
    paper = package("errors", "more")
    preset = paper.preset_named("small").changed(["seeds=1", "errors_steps=1"])
    results = reproduce(paper.selected(["errors"]), preset, tmp_path / "runs", tmp_path / "out", device="cpu")
    findings = Findings(paper, results)
    for figure in ("fig1", "1", findings.figures["fig1"]):
        assert len(findings.draw(figure).axes) == 1
        assert findings.caption(figure) == "1 seeds."
    pyplot.close("all")
    with pytest.raises(InvalidValue, match="results of more are missing"):
        findings.draw("fig2")
    with pytest.raises(InvalidValue, match="fig3"):
        findings.caption("fig3")
