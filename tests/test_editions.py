"""A store and a results folder that an earlier edition of the code wrote still open, verify, serve and redraw."""

import tarfile

import pytest
import torch

from recombine.store import Store
from recombine.sweep import train
from tests.command import run
from tests.golden import GOLDEN, MADE_HERE

PACKED = GOLDEN / "edition_one.tar.gz"
KEYS = {
    "194ce5714f09cc915408", "62bdcf6e7e3eba95d132", "7855620adaba7a880e7c", "91f4031335973db8ff3d",
    "9d5054de8de037632fb9", "e03d7926ceb8f8e97008",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    with tarfile.open(PACKED) as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path


def test_its_runs_are_listed_and_verified(folder, capsys):
    assert run("runs", "list", "--store", folder / "store") == 0
    assert "6 finished runs" in capsys.readouterr().out
    assert run("verify", folder / "store") == 0
    assert {run.key for run in Store(folder / "store")} == KEYS


def test_its_runs_are_served_and_not_trained_again(folder, monkeypatch):
    specs = [run.spec for run in Store(folder / "store")]
    monkeypatch.setattr("recombine.sweep.group.fit", None)
    assert {run.key for run in train(specs, folder / "store", device="cpu")} == KEYS


def test_a_run_trained_now_has_the_same_key_and_weights(folder):
    old = Store(folder / "store")["62bdcf6e7e"]
    (new,) = train(old.spec, folder / "new", device="cpu")
    assert new.key == old.key
    for name, value in old.weights().items():
        assert new.weights()[name] == pytest.approx(value, rel=0 if MADE_HERE else 1e-4, abs=0 if MADE_HERE else 1e-6)


def test_its_checkpoint_goes_on(folder):
    store = Store(folder / "store")
    (checkpoint,) = (folder / "store" / "checkpoints").iterdir()
    assert checkpoint.name in store.unfinished()


def test_its_modules_render(folder):
    for stored in Store(folder / "store"):
        task = stored.spec.task
        assert torch.isfinite(stored.module()(task.examples(task.grid.points[:3]).inputs)).all()


@pytest.mark.parametrize("words", [["report"], ["claims", "--from"], ["figure", "regimes", "--from"]], ids=str)
def test_its_results_verify_and_are_told_from_this_editions(words, folder, capsys):
    """What was measured then is not judged by criteria, nor drawn by code, that were written for more."""
    assert run("verify", folder / "results") == 0
    capsys.readouterr()
    before = (folder / "results" / "claims.json").read_bytes()
    assert run(*words, folder / "results") == 2
    said = capsys.readouterr().err
    assert "another one measured" in said
    assert "regimes" in said
    assert (folder / "results" / "claims.json").read_bytes() == before
