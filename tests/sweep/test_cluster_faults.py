"""Workers and machines that are not as they should be: one clear line, nothing lost, nobody else troubled."""

import subprocess

import pytest

from recombine.store import Store
from tests.small import small_spec
from tests.sweep.cluster import kill

pytest.importorskip("distributed")
SPECS = [small_spec("mlp", seed=seed) for seed in range(300, 304)]
KEYS = sorted(spec.digest for spec in SPECS)


def test_a_worker_with_another_folder_at_the_path_of_the_store_is_found_at_once(unlike, tmp_path):
    """Nothing is trained into the other folder, whether it is a store or not."""
    store, other = tmp_path / "store", tmp_path / "other"
    Store(other)
    unlike.replace_workers(pretend={"store": str(other)})
    unlike.finish(unlike.drive(store, SPECS))
    line = unlike.said()[-1]
    assert line.startswith(
        f"StoreError: store: '{store}' is not allowed; allowed: the directory that the driver has there"
    )
    assert "(on all workers, last w" in line
    assert len(Store(store)) == len(Store(other)) == 0
    unlike.replace_workers()
    unlike.finish(unlike.drive(store, SPECS))
    assert sorted(Store(store).keys()) == KEYS
    assert list((store / "locks").iterdir()) == []


def test_workers_of_another_version_are_set_aside(unlike, tmp_path):
    unlike.replace_workers(pretend={"recombine": "0.0.1"})
    unlike.finish(unlike.drive(tmp_path / "store", SPECS))
    *lines, last = unlike.said()
    reason = "RecombineError: recombine 0.0.1 is not allowed; allowed: "
    assert sorted(line.partition(": ")[0] for line in lines) == ["worker w0", "worker w1"]
    assert all(f"set aside ({reason}" in line for line in lines)
    assert last.startswith("RecombineError: workers: none can be used (tcp://")


def test_another_pytorch_is_said_once(unlike, tmp_path):
    """Its runs are as good, and say who trained them; their last bits may differ."""
    unlike.replace_workers(pretend={"torch": "1.99.0+cpu"})
    unlike.finish(unlike.drive(tmp_path / "store", SPECS))
    *lines, last = unlike.said()
    assert last == "finished"
    assert lines
    assert all(": torch 1.99.0+cpu, and " in line for line in lines)
    assert len(set(lines)) == len(lines) <= len(unlike.workers)
    assert {run.result["provenance"]["torch"] for run in Store(tmp_path / "store")} == {"1.99.0+cpu"}


def test_clocks_that_jump_change_nothing(unlike, tmp_path):
    """Workers and driver a day ahead, then a day behind, while a worker is killed."""
    clock, store = tmp_path / "clock", tmp_path / "store"
    clock.write_text("86400")
    unlike.settings = {"pretend": {"clock": str(clock), "quiet": 0.5}}
    unlike.replace_workers()
    long = [small_spec("mlp", seed=seed, steps=300) for seed in range(304, 308)]
    driver = unlike.drive(store, long)
    unlike.until(lambda: len(list((store / "locks").glob("*"))) > 1)
    clock.write_text("-86400")
    kill(unlike.workers[0])
    unlike.finish(driver)
    assert unlike.said()[-1] == "finished"
    assert not any("put aside" in line for line in unlike.said())
    assert sorted(Store(store).keys()) == sorted(spec.digest for spec in long)
    assert set(unlike.saves()[0].values()) == {1}
    assert list((store / "locks").iterdir()) == []


def test_what_a_worker_does_not_say_is_found_in_the_store(unlike, tmp_path):
    """As where its clock is set back by a day, and Dask holds its messages for as long."""
    unlike.settings = {"pretend": {"mute": True, "quiet": 0.3}}
    unlike.replace_workers()
    unlike.finish(unlike.drive(tmp_path / "store", SPECS), patience=60)
    assert unlike.said() == ["finished"]
    assert sorted(Store(tmp_path / "store").keys()) == KEYS
    assert set(unlike.saves()[0].values()) == {1}


def test_workers_with_a_gpu_take_ensembles_and_others_single_runs(unlike, tmp_path):
    """GPU=1 of a worker is a resource, which here stands for this CPU."""
    unlike.extra = {0: ["--resources", "GPU=1"]}
    unlike.replace_workers(pretend={"gpu": True})
    specs = [small_spec("mlp", seed=seed, steps=100) for seed in range(310, 326)]
    unlike.finish(unlike.drive(tmp_path / "store", specs, device="auto", members=4))
    assert unlike.said()[-1] == "finished"
    together = [run.result["provenance"]["members_together"] for run in Store(tmp_path / "store")]
    assert len(together) == len(specs)
    assert together.count(4) >= 4
    assert max(together) == 4
    if together.count(1):  # unless the ensembles had taken all
        assert "w1" in (unlike.folder / "worker").read_text()


@pytest.fixture
def read_only(tmp_path):
    """A folder that is also mounted read-only elsewhere, where the system lets us."""
    folder, view = tmp_path / "folder", tmp_path / "view"
    folder.mkdir()
    view.mkdir()
    if subprocess.run(["mount", "--bind", folder, view], capture_output=True).returncode:
        pytest.skip("a folder cannot be mounted here")
    subprocess.run(["mount", "-o", "remount,bind,ro", view], check=True)
    yield folder, view
    subprocess.run(["umount", "-l", view], check=True)


def test_a_read_only_store_is_one_line_for_driver_and_workers(unlike, read_only):
    folder, view = read_only
    Store(folder / "store")
    unlike.finish(unlike.drive(view / "store", SPECS))
    (line,) = unlike.said()
    assert line.startswith("StoreError: store: ")
    assert "Read-only file system" in line
    unlike.replace_workers(pretend={"store": str(view / "store")})  # it has the driver's lock, and cannot be written
    unlike.finish(unlike.drive(folder / "store", SPECS))
    line = unlike.said()[-1]
    assert line.startswith("StoreError: store: ")
    assert "Read-only file system" in line
    unlike.replace_workers()
    unlike.finish(unlike.drive(folder / "store", SPECS))
    assert sorted(Store(folder / "store").keys()) == KEYS
