"""On a real Dask cluster nothing is lost and nothing is done twice, whoever is killed."""

import random
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from recombine.store import Store
from tests.small import small_spec
from tests.sweep.cluster import KILLER, RAISER, is_alive, kill, wait_for

pytest.importorskip("distributed")


def contents(store, specs):
    """The bytes that must not depend on who was killed."""
    folder = Path(store) / "runs"
    return [(folder / s.digest / n).read_bytes() for s in specs for n in ("weights.safetensors", "arrays.safetensors")]


def check(cluster, store, calm, specs):
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


def check_repeated(cluster, specs, kills):
    """No kill of a worker cost more than the time between two checkpoints, which come between two spans of steps."""
    work, needed = cluster.work(), sum(spec.total_steps for spec in specs)
    assert work.steps >= needed
    assert work.repeated(needed) <= kills * (CHECKPOINT + work.longest)


SPECS = [small_spec("mlp", seed=seed, steps=100) for seed in range(12)]
INNOCENT = [small_spec("mlp", seed=seed) for seed in range(102, 106)]
LONG = [small_spec("mlp", seed=seed, steps=1500) for seed in range(200, 202)]
CHECKPOINT = 0.1
"""Seconds between checkpoints, as `Cluster.drive` has them."""
NEVER = 1e6
"""Seconds between checkpoints: there is one only if training was stopped in good order."""


def finished(store):
    folder = Path(store) / "runs"
    return len(list(folder.iterdir())) if folder.exists() else 0


def storm(cluster, store, specs, *, worker_kills, driver_kills, scheduler_at, drivers=1, seed=0, patience=600):
    """Kill workers at random moments, drivers and the scheduler at some progress, and start all of them again."""
    chance, kills = random.Random(seed), 0
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
    return running


def test_kills_lose_nothing_and_repeat_nothing(running, tmp_path):
    alone = running.drive(tmp_path / "calm", SPECS, alone=True)
    running.finish(alone)
    running.audit.write_text("")
    storm(running, tmp_path / "store", SPECS, worker_kills=3, driver_kills=1, scheduler_at=0.5, patience=100)
    assert running.said()[-1] == "finished"
    check(running, tmp_path / "store", tmp_path / "calm", SPECS)
    check_repeated(running, SPECS, 3 + len(running.workers))  # with the scheduler go its workers


def test_runs_that_kill_or_raise_are_put_aside_and_their_neighbours_finish(running, tmp_path):
    running.finish(running.drive(tmp_path / "store", [KILLER, RAISER, *INNOCENT]))
    lines = running.said()
    assert lines[-1].startswith("runs: 2 of 6 failed and were put aside, the others are in the store: ")
    assert f"{KILLER.digest[:8]} (killed its worker 3 times, the last one was w" in lines[-1]
    assert f"{RAISER.digest[:8]} (RuntimeError: poisoned)" in lines[-1]
    assert [line.split()[1].rstrip(":") for line in lines if "put aside (" in line and line.startswith("run ")] != []
    assert sum(line.startswith("worker ") and ": lost" in line for line in lines) == 3
    assert sorted(Store(tmp_path / "store").keys()) == sorted(spec.digest for spec in INNOCENT)
    assert all(count == 1 for count in running.saves()[0].values())


def test_an_interrupted_driver_leaves_checkpoints_and_no_locks(running, tmp_path):
    store = tmp_path / "store"
    driver = running.drive(store, LONG, checkpoint=NEVER)
    running.until(lambda: all((store / "locks" / spec.digest).exists() for spec in LONG))
    kill(driver, signal.SIGINT)
    running.finish(driver)
    assert running.said()[-1] == "interrupted; the same command goes on from here"
    kept = Store(store)
    assert sorted(kept.unfinished()) == sorted(spec.digest for spec in LONG)
    assert not any(kept.is_busy(spec.digest) for spec in LONG)


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


def test_a_full_store_is_waited_for(running, tmp_path):
    running.trouble.write_text("full")
    driver = running.drive(tmp_path / "store", INNOCENT)
    running.until(lambda: any("waiting" in line for line in running.said()))
    running.trouble.unlink()
    running.finish(driver)
    first, *back, last = running.said()
    assert first.startswith("store: it is not allowed (on worker w")
    assert back in ([], ["store: it can be used again, going on"])  # unless the other worker finished all
    assert last == "finished"
    assert len(Store(tmp_path / "store")) == len(INNOCENT)


def test_a_store_that_all_workers_refuse_ends_the_sweep(running, tmp_path):
    running.trouble.write_text("refused")
    running.finish(running.drive(tmp_path / "store", INNOCENT))
    assert "StoreError: store: it is not allowed (on all workers, last w" in running.said()[-1]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_workers_without_the_device_are_set_aside(running, tmp_path):
    running.finish(running.drive(tmp_path / "store", INNOCENT, device="cuda"))
    lines = running.said()
    assert "RecombineError: workers: none can be used (tcp://" in lines[-1]
    assert "DeviceError: device: 'cuda' is not allowed" in lines[-1]
    assert any(line.startswith("worker w0: set aside (DeviceError: ") for line in lines)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 24 MB, where the system lets us have one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", folder], capture_output=True).returncode:
        pytest.skip("a disk cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.slow
def test_a_disk_that_fills_up_in_the_middle(running, tmp_path, small_disk):
    store, filler = small_disk / "store", small_disk / "filler"
    driver = running.drive(store, SPECS)
    running.until(lambda: finished(store) >= 3)
    with suppress(OSError), open(filler, "wb", buffering=0) as file:
        while file.write(bytes(1 << 16)):
            pass
    running.until(lambda: any("waiting" in line for line in running.said()) or not is_alive(driver))
    before = finished(store)
    assert before < len(SPECS)
    assert all(not problems for _, problems in Store(store).verify())
    filler.unlink()
    running.finish(driver)
    assert running.said()[-2:] == ["store: it can be used again, going on", "finished"]
    saves, again = running.saves()
    assert not again
    assert sorted(saves.values()) == [1] * len(SPECS)
    assert all(not problems for _, problems in Store(store).verify())


@pytest.mark.slow
@pytest.mark.parametrize("drivers", [1, 2])
def test_the_long_storm(running, tmp_path, drivers):
    specs = [small_spec("mlp", seed=seed, steps=60) for seed in range(300)]
    alone = running.drive(tmp_path / "calm", specs, alone=True)
    running.until(lambda: not is_alive(alone), 900)
    running.audit.write_text("")
    storm(
        running, tmp_path / "store", specs, worker_kills=20, driver_kills=2, scheduler_at=0.5, drivers=drivers,
        patience=1800,
    )  # fmt: skip
    check(running, tmp_path / "store", tmp_path / "calm", specs)
    check_repeated(running, specs, 20 + len(running.workers))
