"""`recombine reproduce --study FILE`: the file of the documents, from criteria to report, and mistakes in one line."""

import json
import re
from pathlib import Path

import pytest

from tests.command import captured, run

TEXT = re.search(
    r"```toml\n(.*?)```", (Path(__file__).parents[2] / "docs" / "own_studies.md").read_text(encoding="utf-8"), re.DOTALL
)[1]
QUICK = ("--device", "cpu", "--processes", "1")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The documents' study, run in a folder of its own."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "my_study.toml").write_text(TEXT)
    words = ("--study", folder / "my_study.toml", "--store", folder / "runs", "--out", folder / "report", *QUICK)
    assert run("reproduce", *words) == 0
    return folder


def test_the_study_of_the_documents_is_registered_judged_and_reported(done):
    judged = json.loads((done / "report" / "claims.json").read_text())
    assert {own["claim"]: own["headline"] for own in judged} == {"S1": "described", "S2": "described"}
    assert {own["timing"] for own in judged} == {"before the data"}
    page = (done / "report" / "index.html").read_text()
    for part in ("coordinate MLP", "decoder=mlp", "8/8", "came out at", 'id="ood_accuracy"', "my_study.toml"):
        assert part in page
    assert (done / "report" / "figures" / "factorization_output.svg").is_file()


def test_the_other_commands_take_the_file_too(done, capsys):
    words = ("--study", done / "my_study.toml", "--from", done / "report")
    assert "Verdict: described" in captured(("claims", "S2", *words), capsys).out
    assert captured(("figure", "ood_accuracy", *words), capsys).code == 0
    assert captured(("report", done / "report", *words[:2]), capsys).code == 0


def test_a_second_call_trains_nothing_and_another_folder_knows_of_the_data(done, capsys, blank_figures):
    words = ("--study", done / "my_study.toml", "--store", done / "runs", *QUICK)
    before = {path: path.stat().st_mtime_ns for path in (done / "runs" / "runs").iterdir()}
    assert run("reproduce", *words, "--out", done / "report") == 0
    assert run("reproduce", *words, "--out", done / "other", "--set", "seeds=3") == 0
    assert {path: path.stat().st_mtime_ns for path in (done / "runs" / "runs").iterdir()} == before
    own, other = (json.loads((done / name / "claims.json").read_text())[0] for name in ("report", "other"))
    assert (own["timing"], own["described"]) == ("before the data", "yes")
    assert (other["timing"], other["described"]) == ("not registered", "direction only")
    assert "As claimed: too few networks" in capsys.readouterr().out


def test_a_criterion_changed_after_the_data_is_marked(done, tmp_path, capsys):
    changed = tmp_path / "my_study.toml"
    changed.write_text(TEXT.replace("effect = 0.2", "effect = 0.1"))
    out = captured(("claims", "--study", changed, "--from", done / "report"), capsys).out
    assert "criteria changed after data collection: S2" in out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[arms", "file must be a TOML file"),
        ("", "bad.toml: arms must be given"),
        ("[arms]", "bad.toml: arms must be"),
        ("[arms.a]\nsize = 6", "bad.toml: claim must be given, or figures"),
        ("[arms.a]\nwidht = 6", "bad.toml: a: field must be width"),
        ("wdth = 3\n[arms.a]", "bad.toml: field must be width"),
        ('figures = ["ood_mse"]\n[arms.a]\nwidth = [4, 8]', "bad.toml: a: arm must be one spec: one value per flag"),
        ('figures = ["ood_mse"]\n[arms.a]\nseeds = 3', "bad.toml: a: seeds must be the same for all arms"),
        ('figures = ["ood_mse"]\nseeds = [1, 5]\n[arms.a]', "bad.toml: seeds must be a number of seeds (8) or a range"),
        ('figures = ["nothing"]\n[arms.a]', "bad.toml: measure must be"),
        ('figures = ["ood_mse"]\n[arms.a]\n[arms.b]\nprecision = "bf16"', "bad.toml: precision must be the same"),
        ('learnt = {error = 1}\nfigures = ["ood_mse"]\n[arms.a]', "bad.toml: field must be one of largest_error"),
        ("[arms.a]\n[[claim]]\ntext = 'x'", "bad.toml: claim 1: measure must be given"),
        (TEXT.replace('less = "MLP"', 'less = "CNN"'), "bad.toml: claim 2: arms must be one of MLP, coordinate MLP"),
        (TEXT + "above = 1", "bad.toml: claim 2: criterion must be one of effect, above, below and between"),
        (TEXT.replace('[arms.MLP]', '[arms.MLP]\nepochs = 2\nsteps = 3'), "bad.toml: MLP: steps must be left out"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_file_is_one_line(text, message, tmp_path, capsys):
    (tmp_path / "bad.toml").write_text(text)
    outcome = captured(("claims", "--study", tmp_path / "bad.toml", "--from", tmp_path), capsys)
    assert outcome.code == 2
    assert len(outcome.err.splitlines()) == 1
    assert message in outcome.err


STUDY = """
import recombine as rc
from recombine.reproduction.own_study import OwnClaim, own_paper

spec = rc.RunSpec(task=rc.BumpTask(size=6), decoder="mlp:width=4:depth=1", recipe=rc.Recipe(steps=2))
PAPER = own_paper("from_python", {"a": spec}, [OwnClaim(text="x", measure="ood_mse", arms="a", above=0)], seeds=2)
"""


def test_a_python_file_may_say_the_same(tmp_path, blank_figures):
    whole, parts = STUDY, STUDY + "STUDY, CLAIMS = PAPER.studies['from_python'], PAPER.claims.values()\ndel PAPER\n"
    for name, text in (("whole_study", whole), ("study_in_parts", parts)):
        (tmp_path / f"{name}.py").write_text(text)
        words = ("--store", tmp_path / f"{name}_runs", *QUICK)
        assert run("reproduce", "--study", tmp_path / f"{name}.py", *words, "--out", tmp_path / name) == 0
        assert json.loads((tmp_path / name / "claims.json").read_text())[0]["timing"] == "before the data"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("no_study_here.py", "x = 1", "study must be a file with PAPER (a Paper), or with STUDY"),
        ("broken_study.py", "import nowhere", "--study {} failed: ModuleNotFoundError"),
        ("study.txt", "", "study must be a file ending in .toml"),
        ("missing.toml", None, "file must be a readable file"),
        ("missing_study.py", None, "--study {} failed"),
    ],
)
def test_a_file_that_is_none_is_one_line(name, text, message, tmp_path, capsys):
    if text is not None:
        (tmp_path / name).write_text(text)
    outcome = captured(("reproduce", "--study", tmp_path / name, "--out", tmp_path / "out"), capsys)
    assert outcome.code == 2
    assert len(outcome.err.splitlines()) == 1
    assert message.format(tmp_path / name) in outcome.err
