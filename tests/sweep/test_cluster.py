"""On a real Dask cluster nothing is lost and nothing is done twice, whoever is killed."""

import random
import signal
import sys
import time
from pathlib import Path

import pytest

from recombine.errors import InvalidValue, RecombineError
from recombine.store import Store
from recombine.sweep import train
from tests.command import captured
from tests.small import small_spec
from tests.sweep.cluster import KILLER, RAISER, is_alive, kill, wait_for, work_of
from tests.tiny import FLAGS

pytest.importorskip("distributed")

INNOCENT = [small_spec("mlp", seed=seed) for seed in range(102, 106)]
KEYS = sorted(spec.digest for spec in INNOCENT)
LONG = [small_spec("mlp", seed=seed, steps=1500) for seed in range(200, 202)]
CHECKPOINT = 0.1
"""Seconds between checkpoints, as `Cluster.drive` has them."""
NEVER = 1e6
"""Seconds between checkpoints: there is one only if training was stopped in good order."""


def contents(store, specs):
    """The bytes that must not depend on who was killed."""
    folder = Path(store) / "runs"
    return [(folder / s.digest / n).read_bytes() for s in specs for n in ("weights.safetensors", "arrays.safetensors")]


def finished(store):
    folder = Path(store) / "runs"
    return len(list(folder.iterdir())) if folder.exists() else 0


def check(cluster, store, calm, specs, kills):
    """All runs are there, each was finished once, with the bits of a calm run, and nothing was left behind."""
    saves, again = cluster.saves()
    assert not again
    assert {key: count for key, count in saves.items() if count > 1} == {}
    assert contents(store, specs) == contents(calm, specs)
    kept = Store(store)
    assert len(kept) == len(specs)
    assert all(not problems for _, problems in kept.verify())
    kept.clean()
    assert not kept.unfinished()
    assert [path for name in ("locks", "tmp", "checkpoints", "damaged") for path in (kept.path / name).iterdir()] == []
    work, needed = work_of(cluster.steps), sum(spec.total_steps for spec in specs)
    repeated = work.repeated(needed)
    print(f"{len(specs)} runs, {kills} kills: {work.steps - needed} of {needed} steps repeated, {repeated:.2f} s")
    assert work.steps >= needed
    assert repeated <= kills * (CHECKPOINT + work.longest)  # checkpoints come between two spans of steps


def storm(cluster, store, specs, *, worker_kills, driver_kills=0, scheduler_at=None, drivers=1, patience=600):
    """Kill workers at random moments, drivers and the scheduler at some progress, and start all of them again."""
    chance, kills = random.Random(0), 0
    cluster.steps.write_text("")
    running = [cluster.drive(store, specs) for _ in range(drivers)]
    moments = sorted(chance.uniform(0.05, 0.9) * len(specs) for _ in range(worker_kills))
    driver_moments = sorted(chance.uniform(0.1, 0.8) * len(specs) for _ in range(driver_kills))
    deadline = time.monotonic() + patience
    while any(is_alive(driver) for driver in running):
        assert time.monotonic() < deadline, [cluster.said(number) for number in range(len(cluster.drivers))]
        cluster.keep()
        done = finished(store)
        if moments and done >= moments[0]:
            pid = cluster.workers[chance.choice(list(cluster.workers))]
            time.sleep(chance.uniform(0, 0.3))
            if is_alive(pid):
                kill(pid)
                kills += 1
                moments.pop(0)
        if driver_moments and done >= driver_moments[0]:
            driver_moments.pop(0)
            victim = chance.randrange(len(running))
            kill(running[victim])
            running[victim] = cluster.drive(store, specs)
        if scheduler_at is not None and done >= scheduler_at * len(specs):
            scheduler_at = None
            kill(cluster.scheduler)
            cluster.until(lambda: not is_alive(cluster.scheduler))
            cluster.start_scheduler()
        time.sleep(0.02)
    assert kills == worker_kills
    assert cluster.said()[-1] == "finished"


def test_a_killed_worker_costs_a_checkpoint_interval(running, tmp_path):
    specs = [small_spec("mlp", seed=seed, steps=200) for seed in range(6)]
    running.finish(running.drive(tmp_path / "calm", specs, alone=True))
    running.audit.write_text("")
    storm(running, tmp_path / "store", specs, worker_kills=1, patience=60)
    check(running, tmp_path / "store", tmp_path / "calm", specs, kills=1)


@pytest.mark.slow
@pytest.mark.parametrize("drivers", [1, 2])
def test_the_long_storm(running, tmp_path, drivers):
    specs = [small_spec("mlp", seed=seed, steps=200) for seed in range(100)]
    running.finish(running.drive(tmp_path / "calm", specs, alone=True), patience=900)
    running.audit.write_text("")
    storm(running, tmp_path / "store", specs, worker_kills=15, driver_kills=1, scheduler_at=0.5, drivers=drivers)
    check(running, tmp_path / "store", tmp_path / "calm", specs, kills=15 + len(running.workers))  # with the scheduler


def test_runs_that_kill_or_raise_are_put_aside_and_their_neighbours_finish(running, tmp_path):
    running.finish(running.drive(tmp_path / "store", [KILLER, RAISER, *INNOCENT]))
    lines = running.said()
    assert {line.split()[1].rstrip(":") for line in lines if ": failed (" in line} == {KILLER.digest, RAISER.digest}
    assert any("RuntimeError: poisoned" in line for line in lines)
    assert lines[-1].startswith("2 of 6 runs failed")
    assert sorted(Store(tmp_path / "store").keys()) == KEYS
    assert set(running.saves()[0].values()) == {1}


def test_an_interrupted_driver_leaves_checkpoints_and_no_locks(running, tmp_path):
    store = tmp_path / "store"
    driver = running.drive(store, LONG, checkpoint=NEVER)
    running.until(lambda: all((store / "locks" / spec.digest).exists() for spec in LONG))
    kill(driver, signal.SIGINT)
    running.finish(driver)
    assert running.said()[-1].startswith("interrupted")
    assert sorted(Store(store).unfinished()) == sorted(spec.digest for spec in LONG)
    assert list((store / "locks").iterdir()) == []


def test_a_worker_that_is_told_to_end_writes_a_checkpoint_first(running, tmp_path):
    store = tmp_path / "store"
    driver = running.drive(store, LONG[:1], checkpoint=NEVER)
    lock, checkpoint = (store / name / LONG[0].digest for name in ("locks", "checkpoints"))
    running.until(lock.exists)
    time.sleep(0.2)
    for pid in running.workers.values():
        kill(pid, signal.SIGTERM)
    wait_for(checkpoint.exists, 30)
    kill(driver)


def test_what_a_worker_does_not_say_is_found_in_the_store(unlike, tmp_path):
    """As where its clock is set back by a day, and Dask holds its messages for as long."""
    unlike.settings = {"pretend": {"mute": True, "quiet": 0.3}}
    unlike.replace_workers()
    unlike.finish(unlike.drive(tmp_path / "store", INNOCENT), patience=60)
    assert unlike.said() == ["finished"]
    assert sorted(Store(tmp_path / "store").keys()) == KEYS
    assert set(unlike.saves()[0].values()) == {1}


def test_workers_with_another_store_or_version_end_the_sweep_in_one_line(unlike, tmp_path):
    """Nothing is trained into the other folder."""
    store, other = tmp_path / "store", tmp_path / "other"
    Store(other)
    for pretend, expected in (
        ({"store": str(other)}, "is not the driver's"),
        ({"version": "0.0.1"}, "0.0.1"),
    ):
        unlike.replace_workers(pretend=pretend)
        unlike.finish(unlike.drive(store, INNOCENT))
        (line,) = unlike.said()
        assert expected in line
    assert len(Store(store)) == len(Store(other)) == 0
    assert list((store / "locks").iterdir()) == []


def test_workers_with_a_gpu_take_ensembles(unlike, tmp_path):
    """GPU=1 of a worker is a resource, which here stands for this CPU."""
    unlike.extra = {0: ["--resources", "GPU=1"]}
    unlike.replace_workers(pretend={"gpu": True})
    unlike.finish(unlike.drive(tmp_path / "store", INNOCENT, device="auto", members=2))
    assert unlike.said() == ["finished"]
    together = [run.result["provenance"]["members_together"] for run in Store(tmp_path / "store")]
    assert together == [2] * len(INNOCENT)


def test_without_dask_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(RecombineError, match="pip install distributed"):
        train(small_spec(), tmp_path / "store", scheduler="tcp://127.0.0.1:1")


@pytest.mark.parametrize("content", ["", "[]", '{"address": 3}'])
def test_a_file_that_no_scheduler_wrote_is_refused(tmp_path, content):
    (tmp_path / "file.json").write_text(content)
    with pytest.raises(InvalidValue):
        train(small_spec(), tmp_path / "store", scheduler=tmp_path / "file.json")


def test_an_absent_scheduler_is_one_line_and_finished_runs_need_none(store_path, capsys, monkeypatch):
    monkeypatch.setattr("recombine.sweep.cluster.CONNECT_SECONDS", 0.5)
    words = "train --size 8 --decoder mlp --width 4 --depth 1 --steps 2 --samples 20 --device cpu"
    nobody = "--scheduler tcp://127.0.0.1:9"
    outcome = captured(f"{words} {nobody}", capsys)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert captured(words, capsys).code == 0
    assert captured(f"{words} {nobody}", capsys).code == 0
    study = " ".join(["reproduce encoder", *FLAGS, nobody])
    assert captured(f"{study} --out {store_path.parent / 'report'}", capsys).code == 2
    assert not (store_path.parent / "report").exists()
