"""Killed at any moment, training goes on to the same bits; two processes never train the same run."""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from recombine.store import Store
from recombine.sweep import train
from tests.small import small_spec

ROOT = Path(__file__).parents[2]
KILLS = 10  # tests/campaigns kills at every storage call; these are for the moments between


class Zygote:
    """Starts training children and kills them."""

    def __init__(self, environment=None):
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "zygote.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, cwd=ROOT, env={**os.environ, **(environment or {})},
        )  # fmt: skip
        assert self.process.stdout.readline() == "ready\n"

    def train(self, store, specs, kill_after=None, signal_number=signal.SIGKILL, **order):
        """Train; kill after some seconds if it is not done. Returns seconds taken and whether it was killed."""
        words = {"store": str(store), "specs": [json.loads(s.to_json()) for s in specs], "checkpoint": 0.0, **order}
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        began = time.perf_counter()
        child = int(self.process.stdout.readline())
        timer = threading.Timer(kill_after, os.kill, (child, signal_number)) if kill_after is not None else None
        if timer:
            timer.start()
        code = int(self.process.stdout.readline())
        if timer:
            timer.cancel()
        took = time.perf_counter() - began
        interrupted = os.WIFEXITED(code) and os.WEXITSTATUS(code) == 130
        assert code in (0, signal.SIGKILL) or interrupted, code
        return took, code != 0

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)


@pytest.fixture(scope="module")
def zygote():
    started = Zygote()
    yield started
    started.close()


def contents(store, specs):
    """The bytes that must not depend on interruptions."""
    folder = Path(store) / "runs"
    return [(folder / s.digest / n).read_bytes() for s in specs for n in ("weights.safetensors", "arrays.safetensors")]


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_with_the_same_bits(zygote, tmp_path):
    specs = [small_spec("cnn", seed=seed, steps=30) for seed in range(2)]
    whole, _ = zygote.train(tmp_path / "whole", specs)
    expected = contents(tmp_path / "whole", specs)
    chance = random.Random(0)
    kills = went_on = 0
    for trial in range(200):
        if kills == KILLS:
            break
        store = tmp_path / f"trial{trial}"
        _, killed = zygote.train(store, specs, kill_after=chance.uniform(0, whole))
        if not killed:
            continue
        kills += 1
        if store.exists() and (store / "recombine.json").exists():
            opened = Store(store)
            assert all(not problems for _, problems in opened.verify())
            went_on += bool(opened.unfinished())
        zygote.train(store, specs)
        assert contents(store, specs) == expected
        assert all(not problems for _, problems in Store(store).verify())
        assert Store(store).unfinished() == []
    assert kills == KILLS
    assert went_on >= 3, "hardly any kill left a checkpoint to go on from"


def trained_in_a_fork(store, specs, kill_after=None):
    """Train in a fork of this process, killed after some seconds. Returns seconds taken and whether it was killed."""
    options = {"device": "cpu", "checkpoint_seconds": 0.0}
    child = multiprocessing.get_context("fork").Process(target=train, args=(specs, store), kwargs=options)
    began = time.perf_counter()
    child.start()
    child.join(kill_after)
    child.kill()
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL)
    return time.perf_counter() - began, child.exitcode != 0


def test_one_run_killed_again_and_again_gets_there(tmp_path):
    specs = [small_spec("low_rank", steps=60)]
    whole, _ = trained_in_a_fork(tmp_path / "whole", specs)
    store, chance, kills = tmp_path / "store", random.Random(1), 0
    for _ in range(60):
        _, killed = trained_in_a_fork(store, specs, kill_after=chance.uniform(0.2 * whole, 0.9 * whole))
        kills += killed
        if not killed:
            break
    trained_in_a_fork(store, specs)
    assert kills > 0
    assert contents(store, specs) == contents(tmp_path / "whole", specs)


@pytest.mark.slow
def test_two_processes_share_the_work_and_train_nothing_twice(tmp_path):
    specs = [small_spec("cnn", seed=seed, steps=60) for seed in range(6)]
    log = tmp_path / "log"
    both = [Zygote({"RECOMBINE_TEST_LOG": str(log)}) for _ in range(2)]
    store = tmp_path / "store"
    with ThreadPoolExecutor(2) as pool:
        done = [pool.submit(zygote.train, store, specs) for zygote in both]
        for future in done:
            future.result(120)
    both[0].train(tmp_path / "alone", specs)
    for zygote in both:
        zygote.close()
    saved = [line.split() for line in log.read_text().splitlines() if line.split()[2] == str(store)]
    assert sorted(key for _, key, _ in saved) == sorted(spec.digest for spec in specs)
    assert len({process for process, _, _ in saved}) == 2, "one process did all the work"
    assert contents(store, specs) == contents(tmp_path / "alone", specs)
    assert not list((store / "damaged").iterdir())


@pytest.mark.slow  # a kill at each storage call is in tests/campaigns, an interruption in tests/sweep
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_anywhere_it_goes_on_to_the_same_bits(zygote, tmp_path, number):
    specs = [small_spec("mlp", steps=1200)]
    whole, _ = zygote.train(tmp_path / "whole", specs, checkpoint=30)
    expected = contents(tmp_path / "whole", specs)
    chance, stopped = random.Random(number), 0
    for trial in range(3):
        store = tmp_path / f"trial{trial}"
        _, interrupted = zygote.train(
            store, specs, kill_after=chance.uniform(0.1, 0.9) * whole, signal_number=number, checkpoint=30
        )
        stopped += interrupted and bool(Store(store).unfinished())
        zygote.train(store, specs, checkpoint=30)
        assert contents(store, specs) == expected
    assert stopped >= 1


def test_a_run_in_progress_is_waited_for(tmp_path):
    """A lock held by another process keeps us from training; when it goes, we train."""
    spec, store, (said, say) = small_spec("mlp"), Store(tmp_path / "store"), os.pipe()
    holder = os.fork()
    if not holder:
        try:
            os.write(say, b"held" if store.lock(spec.digest).acquire(wait=False) else b"free")
            time.sleep(1)
        finally:
            os._exit(0)
    os.close(say)
    assert os.read(said, 4) == b"held"
    began = time.perf_counter()
    train([spec], store, device="cpu")
    assert time.perf_counter() - began >= 0.9
    assert store.find(spec.digest) is not None
    os.waitpid(holder, 0)
    os.close(said)
