"""On a real Dask cluster nothing is lost and nothing is done twice, whoever is killed."""

import random
import time
from pathlib import Path

import pytest

from recombine.store import Store
from tests.small import small_spec
from tests.sweep.cluster import Cluster, is_alive, kill

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


@pytest.fixture
def cluster(tmp_path, request):
    started = Cluster(tmp_path / "cluster", **getattr(request, "param", {}))
    yield started
    started.close()


def finished(store):
    folder = Path(store) / "runs"
    return len(list(folder.iterdir())) if folder.exists() else 0


def storm(cluster, store, specs, *, worker_kills, driver_kills, scheduler_at, drivers=1, seed=0, patience=600):
    """Kill workers at random moments, drivers and the scheduler at some progress, and start all of them again."""
    chance, kills = random.Random(seed), 0
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


def test_kills_lose_nothing_and_repeat_nothing(cluster, tmp_path):
    specs = [small_spec("mlp", seed=seed, steps=100) for seed in range(12)]
    alone = cluster.drive(tmp_path / "calm", specs, alone=True)
    cluster.start_scheduler()
    cluster.until(lambda: not is_alive(alone))
    cluster.audit.write_text("")
    storm(cluster, tmp_path / "store", specs, worker_kills=3, driver_kills=1, scheduler_at=0.5, patience=100)
    assert cluster.said()[-1] == "finished"
    check(cluster, tmp_path / "store", tmp_path / "calm", specs)


@pytest.mark.slow
@pytest.mark.parametrize("drivers", [1, 2])
def test_the_long_storm(cluster, tmp_path, drivers):
    specs = [small_spec("mlp", seed=seed, steps=60) for seed in range(300)]
    alone = cluster.drive(tmp_path / "calm", specs, alone=True)
    cluster.start_scheduler()
    cluster.until(lambda: not is_alive(alone), 900)
    cluster.audit.write_text("")
    storm(
        cluster, tmp_path / "store", specs, worker_kills=20, driver_kills=2, scheduler_at=0.5, drivers=drivers,
        patience=1800,
    )  # fmt: skip
    check(cluster, tmp_path / "store", tmp_path / "calm", specs)
