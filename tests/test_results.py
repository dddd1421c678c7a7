"""A folder of results: served for the same question only, judged anew each time."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from recombine.cli import main
from recombine.cli.reproduce import selected
from recombine.errors import InvalidValue
from recombine.reproduction import reproduce
from recombine.results import SOURCE, Results, question_digest
from recombine.studies import STUDIES, preset_named
from tests.tiny import TINY

GOLDEN = Path(__file__).parent / "golden" / "results"
PRESET = preset_named("quick").changed([*TINY, "seeds=2"])


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(GOLDEN, tmp_path / "results")
    return tmp_path / "results"


def run(*words):
    with pytest.raises(SystemExit) as caught:
        main([str(word) for word in words])
    return caught.value.code


def test_every_claim_is_judged_by_one_study():
    claims = [claim for study in STUDIES.values() for claim in study.claims]
    assert sorted(claims, key=lambda name: int(name[1:])) == [f"C{k}" for k in range(1, 19)]


def test_golden_results_judge_all_claims():
    judged = Results.existing(GOLDEN).judgements()
    assert [judgement.claim for judgement in judged] == [f"C{k}" for k in range(1, 19)]
    assert all(judgement.criterion for judgement in judged)


def test_measured_once_and_again_when_the_question_changes(tmp_path, monkeypatch):
    study, measured = STUDIES["encoding_width"], []
    original = type(study).measure
    monkeypatch.setattr(type(study), "measure", lambda self, trials: measured.append(1) or original(self, trials))
    for _ in range(2):
        results = reproduce([study], PRESET, tmp_path / "runs", tmp_path / "out", device="cpu")
    assert len(measured) == 1
    reproduce([study], PRESET.changed(["variances=1,7"]), tmp_path / "runs", tmp_path / "out", device="cpu")
    assert len(measured) == 2
    assert results.provenance["runs"] >= 2


def test_a_run_that_two_studies_share_is_trained_once(tmp_path):
    studies = [STUDIES["superposition"], STUDIES["encodings"]]
    reproduce(studies, PRESET, tmp_path / "runs", tmp_path / "out", device="cpu")
    wanted = {spec.digest for study in studies for spec in study.specs(PRESET)}
    assert len(wanted) < sum(len(study.specs(PRESET)) for study in studies)
    assert {path.name for path in (tmp_path / "runs" / "runs").iterdir()} == wanted


def test_the_same_numbers_from_the_same_runs(tmp_path):
    study = STUDIES["regimes"]
    found = []
    for name in "ab":
        results = reproduce([study], PRESET, tmp_path / "runs", tmp_path / name, device="cpu")
        found.append(results.dataset("regimes"))
    assert found[0].equals(found[1])


def test_digest_depends_on_runs_and_study():
    digests = {question_digest("a", ["1", "2"]), question_digest("a", ["1"]), question_digest("b", ["1", "2"])}
    assert len(digests) == 3
    assert question_digest("a", ["2", "1"]) == question_digest("a", ["1", "2"])


def test_a_broken_file_is_one_line_and_measured_again(folder):
    path = folder / "data" / "depth.nc"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    results = Results.existing(folder)
    with pytest.raises(InvalidValue, match="from"):
        results.dataset("depth")
    assert not results.holds("depth", "anything")


def test_saved_data_come_back_as_they_were(tmp_path):
    data = Results.existing(GOLDEN).dataset("depth").drop_attrs()
    results = Results(tmp_path)
    results.save("depth", data, "digest")
    again = Results(tmp_path).dataset("depth")
    assert again.attrs[SOURCE] == "digest"
    for name in data:
        assert np.array_equal(data[name].values, again[name].values, equal_nan=data[name].dtype.kind == "f")


def test_figure_claims_and_report_train_nothing(folder, capsys, monkeypatch):
    monkeypatch.setattr("recombine.sweep.local.train", None)
    monkeypatch.setattr(torch.nn.Module, "__call__", None)
    assert run("figure", "10", "--from", folder, "--out", folder / "drawn") == 0
    assert "Drawings" in capsys.readouterr().out
    assert (folder / "drawn" / "fig10.png").exists()
    assert (folder / "drawn" / "fig10.svg").exists()
    assert run("claims", "--from", folder) == 0
    listed = capsys.readouterr().out
    assert all(f"C{k} " in listed for k in range(1, 19))
    assert run("claims", "c9", "--from", folder) == 0
    assert "OOD: both below entropy" in capsys.readouterr().out
    for path in (folder / "data").iterdir():
        if path.stem not in ("depth", "regimes"):
            path.unlink()
    assert run("report", folder) == 0
    assert (folder / "index.html").exists()
    assert (folder / "figures" / "fig2.svg").exists()


def test_readme_table_is_written_between_its_marks(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("recombine.cli.reproduce.written", lambda results: results.path)  # pictures are tested above
    readme = tmp_path / "README.md"
    readme.write_text("above\n<!-- verdicts: begin -->\nstale text\n<!-- verdicts: end -->\nbelow\n")
    assert run("report", folder, "--write", readme) == 0
    text = readme.read_text()
    assert text.startswith("above\n")
    assert text.endswith("below\n")
    assert "stale text" not in text
    assert all(f"**C{k}**" in text for k in range(1, 19))
    assert run("report", folder, "--write", readme) == 0
    assert readme.read_text() == text


@pytest.mark.parametrize("word", ["4", "fig4", "Fig4", "FIG4"])
def test_figures_are_asked_for_by_number_or_name(word):
    assert [study.name for study in selected([word])] == ["stripes", "threshold", "tuning"]


MISTAKES = {
    "what": (["reproduce", "fig99"], "what: 'fig99'"),
    "preset": (["reproduce", "--preset", "huge"], "preset: 'huge'"),
    "set": (["reproduce", "--set", "wdth=3"], "set: 'wdth=3'"),
    "set value": (["reproduce", "--set", "size=many"], "size: 'many'"),
    "set without value": (["reproduce", "--set", "size"], "set: 'size'"),
    "seeds": (["reproduce", "--seeds", "0"], "seeds: '0'"),
    "processes": (["reproduce", "--processes", "0"], "processes: 0"),
    "bumps": (["reproduce", "stripes", "--set", "bumps=0,9999"], "training.samples: 9999"),
    "figure": (["figure", "16", "--from", "{golden}"], "figure: '16'"),
    "figure from": (["figure", "1", "--from", "nowhere"], "from: 'nowhere'"),
    "claims from": (["claims", "--from", "nowhere"], "from: 'nowhere'"),
    "claim": (["claims", "C19", "--from", "{golden}"], "claim: 'C19'"),
    "report": (["report", "nowhere"], "from: 'nowhere'"),
    "write": (["report", "{golden}", "--write", "nowhere.md"], "write: 'nowhere.md'"),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_mistakes_are_one_line(kind, capsys, tmp_path, monkeypatch):
    words, message = MISTAKES[kind]
    monkeypatch.chdir(tmp_path)
    shutil.copytree(GOLDEN, tmp_path / "golden")
    assert run(*(word.format(golden=tmp_path / "golden") for word in words)) == 2
    said = capsys.readouterr().err.strip()
    assert message in said
    assert "\n" not in said
    assert "allowed: " in said
