"""Several processes train to the bits of one, whoever is stopped or killed meanwhile, and leave nobody behind."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from recombine.errors import Interrupted, InvalidValue, RecombineError, StoreError
from recombine.store import Store
from recombine.sweep import executors, processes, train
from tests.small import small_spec

ROOT = Path(__file__).parents[2]
STEPS = 120
SPECS = [small_spec("mlp", seed=seed, steps=STEPS) for seed in range(4)]
NEVER = 1e6
"""Seconds between checkpoints: there is one only if training was stopped in good order."""
PARENT = f"""
import sys
from recombine.sweep import train
from tests.sweep.test_processes import SPECS
train(SPECS, sys.argv[1], device="cpu", processes=2, checkpoint_seconds={NEVER})
"""


def contents(store):
    """The bytes that must not depend on the number of processes."""
    folder = Path(store) / "runs"
    return [(folder / s.digest / n).read_bytes() for s in SPECS for n in ("weights.safetensors", "arrays.safetensors")]


def threads(runs):
    return {run.result["provenance"]["device"] for run in runs}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A store where one process has trained all specs."""
    store = tmp_path_factory.mktemp("alone") / "store"
    train(SPECS, store, device="cpu", processes=1)
    return store


@pytest.fixture
def forked(monkeypatch):
    """Children are forks of this process, so that they need not import everything again."""
    forking = multiprocessing.get_context("fork")
    monkeypatch.setattr(multiprocessing, "get_context", lambda method=None: forking)
    torch.set_num_threads(1)


def when_both_train(act):
    """A `watch` that acts once, when two runs are being trained, on the children."""
    acted = []

    def watch(progress):
        if progress.members == 2 and not acted:
            acted.extend(multiprocessing.active_children())
            act(acted)

    return watch


def test_two_processes_give_the_bits_of_one(alone, tmp_path):
    seen = []
    runs = train(SPECS[::-1], tmp_path / "store", device="cpu", processes=2, watch=seen.append)
    assert [run.key for run in runs] == [spec.digest for spec in SPECS[::-1]]
    assert contents(tmp_path / "store") == contents(alone)
    assert threads(runs) == {"cpu (1 threads)"}
    assert multiprocessing.active_children() == []
    assert {progress.runs for progress in seen} == {4}
    assert max(progress.members for progress in seen) == 2
    assert [progress.finished for progress in seen] == sorted(progress.finished for progress in seen)
    assert all(0 <= progress.steps_left <= 4 * STEPS for progress in seen)
    assert any(progress.error > 0 for progress in seen)
    last = seen[-1]
    assert (last.finished, last.members, last.steps_done, last.steps_left) == (4, 0, 4 * STEPS, 0)


def test_no_process_is_started_for_one_run(alone, tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_Workers", None)
    assert [run.key for run in train(SPECS, alone, device="cpu", processes=3)] == [spec.digest for spec in SPECS]
    torch.set_num_threads(2)
    assert threads(train([small_spec()], tmp_path / "store", device="cpu", processes=3)) == {"cpu (1 threads)"}
    assert threads(train([small_spec(seed=1)], tmp_path / "store", device="cpu")) == {"cpu (2 threads)"}


def test_interrupted_it_goes_on_to_the_same_bits(alone, tmp_path, forked):
    def interrupt(children):
        for _ in range(2):  # Ctrl-C reaches the children too, perhaps twice, and must not tear a step
            os.kill(children[0].pid, signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)

    before, store = signal.getsignal(signal.SIGTERM), tmp_path / "store"
    with pytest.raises(Interrupted, match="run the same command to continue"):
        train(SPECS, store, device="cpu", processes=2, checkpoint_seconds=NEVER, watch=when_both_train(interrupt))
    assert multiprocessing.active_children() == []
    assert signal.getsignal(signal.SIGTERM) == before
    assert Store(store).unfinished()
    assert all(not problems for _, problems in Store(store).verify())
    train(SPECS, store, device="cpu", processes=1)
    assert contents(store) == contents(alone)


@pytest.mark.slow
def test_children_of_a_killed_parent_keep_their_work_and_leave(alone, tmp_path):
    store = tmp_path / "store"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(store)], cwd=ROOT, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    deadline = time.monotonic() + 90
    while sum((store / "locks" / spec.digest).exists() for spec in SPECS) < 2 and time.monotonic() < deadline:
        assert parent.poll() is None, parent.stdout.read()
        time.sleep(0.02)
    parent.kill()
    said, _ = parent.communicate(timeout=60)  # returns when the last process that holds the pipe is gone
    assert said == ""
    assert Store(store).unfinished()
    train(SPECS, store, device="cpu", processes=1)
    assert contents(store) == contents(alone)


def test_the_others_take_the_work_of_a_killed_child(alone, tmp_path, forked):
    killed = []

    def kill(children):
        children[0].kill()
        killed.append(children[0].pid)

    train(SPECS, tmp_path / "store", device="cpu", processes=2, watch=when_both_train(kill))
    assert killed
    assert contents(tmp_path / "store") == contents(alone)
    assert multiprocessing.active_children() == []


def test_when_all_children_are_killed_it_says_so(tmp_path, forked, monkeypatch):
    monkeypatch.setattr(processes, "run_worker", lambda *work: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(RecombineError, match=r"exit codes -9, -9"):
        train(SPECS, tmp_path / "store", device="cpu", processes=2)
    assert multiprocessing.active_children() == []


def test_an_error_of_a_child_arrives_as_it_is(tmp_path, forked):
    store = Store(tmp_path / "store")
    (store.path / "tmp").rmdir()
    (store.path / "tmp").write_text("in the way")
    specs = [small_spec(seed=seed) for seed in range(2)]
    with pytest.raises(StoreError) as here:
        train(specs, store, device="cpu")
    with pytest.raises(StoreError) as there:
        train(specs, store, device="cpu", processes=2)
    assert type(there.value) is StoreError
    assert str(there.value) == str(here.value)
    assert multiprocessing.active_children() == []


def test_processes_are_for_a_cpu_and_at_least_one(tmp_path, monkeypatch):
    monkeypatch.setattr(executors, "resolve_device", lambda name: torch.device("cuda"))
    for given in ({"processes": 0}, {"processes": 2, "scheduler": "tcp://127.0.0.1:1"}, {"processes": 2}):
        with pytest.raises(InvalidValue, match="processes"):
            train(SPECS, tmp_path / "store", **given)
    assert not (tmp_path / "store").exists()
