"""A folder of results: served for the same question only, judged again each time."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from recombine.errors import InvalidValue
from recombine.manifest import manifest_text
from recombine.papers.forced_rendering import PAPER as DEFAULT
from recombine.reproduction.forks import in_forks
from recombine.reproduction.paper import Findings
from recombine.reproduction.reproduce import reproduce
from recombine.reproduction.results import SETTINGS, SOURCE, Results
from tests.command import captured, run
from tests.golden import RESULTS, copied
from tests.tiny import TINY

STUDIES = DEFAULT.studies
PRESET = DEFAULT.preset_named("quick").changed([*TINY, "seeds=2"])


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(RESULTS, tmp_path / "results")
    return tmp_path / "results"


def test_every_claim_rests_on_studies_that_there_are():
    assert list(DEFAULT.claims) == [f"C{k}" for k in range(1, 38) if k != 30]  # dropped, see docs/third_edition.md
    for claim in DEFAULT.claims.values():
        assert {*claim.studies, *claim.beside} <= set(STUDIES)
        assert claim.studies


def test_a_run_that_two_studies_share_is_trained_once(tmp_path):
    studies, preset = [STUDIES["regimes"], STUDIES["tuning"]], PRESET.changed(["steps=2", "seeds=1"])
    wanted = {spec.digest for study in studies for spec in study.specs(preset)}
    assert len(wanted) < sum(len(study.specs(preset)) for study in studies)
    reproduce(studies, preset, tmp_path / "runs", tmp_path / "out", device="cpu")
    assert {path.name for path in (tmp_path / "runs" / "runs").iterdir()} == wanted


def test_a_run_trained_to_something_else_is_measured_again(tmp_path):
    study, preset = STUDIES["encoding_width"], PRESET.changed(["variances=1", "steps=2"])

    def answered(store: str) -> str:
        results = reproduce([study], preset, tmp_path / store, tmp_path / "out", device="cpu")
        return str(results.dataset("encoding_width").attrs[SOURCE])

    first = answered("a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for folder in (tmp_path / "b" / "runs").iterdir():
        weights = bytearray((folder / "weights.safetensors").read_bytes())
        weights[-2] ^= 1
        (folder / "weights.safetensors").write_bytes(weights)
        files = json.loads((folder / "manifest.json").read_text())["files"]
        files["weights.safetensors"] = hashlib.sha256(weights).hexdigest()
        (folder / "manifest.json").write_text(manifest_text(folder.name, files))
    assert answered("b") != first
    assert answered("a") == first


# -- where a folder's results came from ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory):
    """Two small studies in a folder, as two calls left them, and the store of their runs."""
    preset, folder = PRESET.changed(["variances=1", "steps=2", "seeds=1"]), tmp_path_factory.mktemp("tiny")
    for name in ("encoding_width", "encoder"):
        reproduce([STUDIES[name]], preset, folder / "runs", folder / "out", device="cpu")
    return folder, preset


@pytest.fixture
def tiny_folder(trained_once, tmp_path):
    """A copy of it."""
    folder, preset = trained_once
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return Results(tmp_path / "out"), preset


def test_every_dataset_says_where_it_came_from(tiny_folder):
    results, preset = tiny_folder
    for name in ("encoding_width", "encoder"):
        assert json.loads(results.dataset(name).attrs[SETTINGS]) == preset.model_dump(mode="json")
    found = results.provenance
    assert found["preset"]["steps"] == 2
    assert (found["runs"], found["diverged"]) == (3, 0)
    assert found["device"].startswith("cpu")
    assert json.loads((results.path / "provenance.json").read_text()) == found


@pytest.mark.parametrize(("change", "field"), [({"steps": 3}, "steps"), ({"name": "mine"}, "preset")])
def test_a_folder_holds_one_preset(tiny_folder, change, field, tmp_path, monkeypatch):
    results, preset = tiny_folder
    before = {path: path.read_bytes() for path in results.path.rglob("*") if path.is_file()}
    monkeypatch.setattr("recombine.reproduction.reproduce.train", None)
    with pytest.raises(InvalidValue, match="or use another --out") as caught:
        reproduce([STUDIES["encoding_width"]], preset.replace(**change), tmp_path / "runs", results.path, device="cpu")
    assert caught.value.field == field
    assert before == {path: path.read_bytes() for path in results.path.rglob("*") if path.is_file()}


def test_all_of_a_folder_may_be_made_anew_with_another_preset(tiny_folder, tmp_path):
    results, preset = tiny_folder
    other = preset.changed(["steps=3"])
    both = [STUDIES["encoding_width"], STUDIES["encoder"]]
    results = reproduce(both, other, tmp_path / "runs", results.path, device="cpu")
    assert results.provenance["preset"]["steps"] == 3
    assert results.provenance["runs"] == 3
    assert set(json.loads((results.path / "runs.json").read_text())) == {
        spec.digest for study in both for spec in study.specs(other)
    }


def test_nothing_is_written_by_a_call_that_is_killed_before_it_has_a_dataset(tiny_folder, tmp_path, monkeypatch):
    results, preset = tiny_folder
    before = {path: path.read_bytes() for path in results.path.rglob("*") if path.is_file()}

    def killed(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("recombine.reproduction.reproduce.train", killed)
    for out in (results.path, tmp_path / "new"):
        both = [STUDIES["encoding_width"], STUDIES["encoder"]]
        with pytest.raises(KeyboardInterrupt):
            reproduce(both, preset.changed(["steps=3"]), tmp_path / "runs", out, device="cpu")
    assert before == {path: path.read_bytes() for path in results.path.rglob("*") if path.is_file()}
    assert not (tmp_path / "new").exists()


def test_diverged_runs_of_all_calls_are_counted(tiny_folder):
    results, _ = tiny_folder
    noted = json.loads((results.path / "runs.json").read_text())
    key = next(key for key, run in noted.items() if run["studies"] == ["encoding_width"])
    noted[key]["status"] = "diverged"
    results.digests.replace({"runs.json": json.dumps(noted).encode()})
    results.note()
    assert results.provenance["diverged"] == 1
    assert results.provenance["runs"] == 3


def test_committed_results_say_of_themselves_what_was_noted():
    results = Results.existing(Path(__file__).parents[2] / "results" / "paper")
    assert results.provenance == results.noted
    settings, noted = results.settings("stripes"), results.noted["preset"]
    assert settings == {name: noted[name] for name in settings}  # studies that came later have settings of their own
    assert set(settings) <= set(noted)


def test_what_is_damaged_is_made_again_and_said(tiny_folder, tmp_path):
    results, preset = tiny_folder
    before = {name: results.dataset(name) for name in results.studies}
    for name in ("data/encoder.nc", "provenance.json", "runs.json"):
        path = results.path / name
        path.write_bytes(path.read_bytes()[:-20])
    both, lines = [STUDIES["encoding_width"], STUDIES["encoder"]], []
    with pytest.raises(InvalidValue, match=r"encoding_width.*runs.json"):
        reproduce(both[1:], preset, tmp_path / "runs", results.path, device="cpu")
    again = reproduce(both, preset, tmp_path / "runs", results.path, device="cpu", say=lines.append)
    for name in ("data/encoder.nc", "provenance.json", "runs.json"):
        assert f"{name}: content changed; it will be rewritten" in lines
    assert sum("measured" in line for line in lines) == 1
    assert again.dataset("encoder").equals(before["encoder"])
    assert again.provenance["runs"] == 3
    assert not again.damaged()
    (results.path / "digests.json").unlink()
    with pytest.raises(InvalidValue, match=r"digests\.json"):
        reproduce(both[1:], preset, tmp_path / "runs", results.path, device="cpu")
    lines.clear()
    again = reproduce(both, preset, tmp_path / "runs", results.path, device="cpu", say=lines.append)
    assert lines[0] == "digests.json: missing; everything will be rewritten"
    assert sum("measured" in line for line in lines) == 2
    assert again.dataset("encoder").equals(before["encoder"])
    assert not again.damaged()


def test_a_lost_dataset_is_not_left_out_silently(folder, capsys):
    (folder / "data" / "encodings.nc").unlink()
    assert run("claims", "--from", folder) == 2
    assert "data/encodings.nc: missing" in capsys.readouterr().err


def test_figure_claims_and_report_train_nothing(tmp_path, capsys, monkeypatch):
    folder = copied(tmp_path / "results", "encoder", "penalties")
    monkeypatch.setattr("recombine.sweep.executors.train", None)
    monkeypatch.setattr(torch.nn.Module, "__call__", None)
    assert run("claims", "--from", folder) == 0
    assert "C9 " in capsys.readouterr().out
    assert run("claims", "c9", "--from", folder) == 0
    assert "held-out accuracy with both" in capsys.readouterr().out
    Results(folder).remove({"penalties"})
    assert run("figure", "encoder", "--from", folder, "--out", folder / "drawn") == 0
    assert {path.name for path in (folder / "drawn").iterdir()} == {"encoder.png", "encoder.svg"}
    assert run("report", folder) == 0
    assert (folder / "index.html").exists()
    assert (folder / "figures" / "encoder.svg").exists()


def test_a_report_is_written_elsewhere(tmp_path, capsys, monkeypatch, blank_figures):
    monkeypatch.setattr("recombine.reproduction.reporting.LARGEST_PAGE", 0)  # no room for data, so they are links
    folder, out = copied(tmp_path / "results", "encoder"), tmp_path / "site" / "page"
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for _ in range(2):  # the second time, it replaces its own files
        assert captured(("report", folder, "--out", out), capsys) == (0, f"report: {out / 'index.html'}\n", "")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()} == {
        "claims.json", "digests.json", "figures/encoder.png", "figures/encoder.svg", "index.html",
    }  # fmt: skip
    page = (out / "index.html").read_text()
    assert page.startswith("<!doctype html>")
    (link,) = set(re.findall(r'href="([^"]*)encoder\.nc"', page))
    assert (out / link / "encoder.nc").samefile(folder / "data" / "encoder.nc")
    assert captured(("report", out), capsys).code == 2  # it has no data


@pytest.mark.parametrize("cores", [1, 2])
def test_a_figure_that_cannot_be_drawn_says_so(cores):
    parent, steps = os.getpid(), []

    def fail():
        raise ValueError("no such colour")

    jobs = {"one": lambda: os.getpid() == parent, "two": lambda: bytes(10**6)}
    assert dict(in_forks(jobs, cores, steps.append)) == {"one": cores == 1, "two": bytes(10**6)}
    assert steps == ["one", "two"]
    with pytest.raises(ValueError, match="no such colour"):
        dict(in_forks({"bad": fail, **jobs}, cores))


def test_forks_use_torch_after_threads_were_used():
    threads, images = torch.get_num_threads(), torch.rand(8, 16, 28, 28)
    torch.set_num_threads(2)
    try:
        jobs = dict.fromkeys(("one", "two"), lambda: float(torch.conv2d(images, torch.ones(16, 16, 3, 3)).sum()))
        here = jobs["one"]()
        assert dict(in_forks(jobs, 2)) == pytest.approx({"one": here, "two": here})
    finally:
        torch.set_num_threads(threads)


def test_readme_table_is_written_between_its_marks(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "recombine.cli.reproduce.written", lambda findings, out, begin: findings.results.path
    )  # pictures are tested above
    kept = {"encodings", "regimes", "penalties"}
    folder = copied(tmp_path / "results", *kept)
    readme = tmp_path / "README.md"
    readme.write_text("above\n<!-- verdicts: begin -->\nstale text\n<!-- verdicts: end -->\nbelow\n")
    assert run("report", folder, "--write", readme) == 0
    text = readme.read_text()
    assert text.startswith("above\n")
    assert text.endswith("below\n")
    assert "stale text" not in text
    judged = [claim.name for claim in DEFAULT.claims.values() if kept >= {*claim.studies}]
    assert len(judged) > 2
    assert all(f"**{claim}**" in text for claim in judged)
    assert run("report", folder, "--write", readme) == 0
    assert readme.read_text() == text


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    """Results of one study."""
    return copied(tmp_path_factory.mktemp("golden") / "results", "encoder")


@pytest.mark.parametrize(
    "words",
    [
        "reproduce fig99",
        "reproduce --set wdth=3",
        "reproduce --set size=many",
        "reproduce stripes --set bumps=0,9999",
        "figure 16 --from {golden}",
        "claims C99 --from {golden}",
        "report nowhere",
        "report {golden} --write nowhere.md",
    ],
)
def test_mistakes_are_one_line_before_anything_is_trained_or_judged(words, golden, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Findings, "judgements", None)
    assert run(*words.format(golden=golden).split()) == 2
    assert "\n" not in capsys.readouterr().err.strip()


def test_forks_end_with_a_killed_parent(tmp_path):
    code = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from recombine.reproduction.forks import in_forks\n"
        "def work():\n"
        "    Path(sys.argv[1], str(os.getpid())).touch()\n"
        "    time.sleep(600)\n"
        "dict(in_forks({'one': work, 'two': work}, 2))\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    deadline = time.monotonic() + 60
    while len(children := list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    while any(Path("/proc", own.name).exists() for own in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(children) == 2
    assert not any(Path("/proc", own.name).exists() for own in children)
