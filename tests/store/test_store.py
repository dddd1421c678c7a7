"""The store: whole files, found damage, shared use."""

import json
import multiprocessing
import os
import shutil
from itertools import pairwise

import numpy as np
import pytest

from recombine.errors import InvalidValue, StoreError
from recombine.store import Run, Store, summarize
from recombine.store.names import pack, unpack
from recombine.sweep import train
from tests.small import small_spec
from tests.store.saving import saved

FILES = ("spec.json", "result.json", "weights.safetensors", "arrays.safetensors", "manifest.json")


def test_what_is_saved_is_found(store_path):
    run = saved(Store(store_path))
    again = Store(store_path).find(run.key)
    assert again.status == "done"
    assert again.spec == small_spec("mlp")
    assert np.array_equal(again.weights()["w"], np.arange(6.0))
    assert again.problems() == []
    assert Store(store_path).find("b" * 20) is None


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_any_damage_is_found_and_not_served(store_path, name, damage):
    store = Store(store_path)
    run = saved(store)
    path = run.path / name
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 0x10
        path.write_bytes(content)
    elif damage == "truncate":
        path.write_bytes(content[: len(content) // 2])
    else:
        path.unlink()
    assert [bool(problems) for _, problems in store.verify()] == [True]
    assert store.find(run.key) is None
    assert list(store.verify()) == []  # put aside
    assert len(list((store_path / "damaged").iterdir())) == 1
    assert list(store) == []


def test_every_single_flipped_bit_of_a_manifest_is_found(store_path):
    run = saved(Store(store_path))
    path = run.path / "manifest.json"
    content = path.read_bytes()
    for position in range(0, len(content), 7):
        changed = bytearray(content)
        changed[position] ^= 1 << (position % 8)
        path.write_bytes(changed)
        assert run.problems(), f"bit {position % 8} of byte {position}"


def test_checkpoints_replace_each_other_and_damage_is_passed_over(store_path):
    store = Store(store_path)
    store.checkpoints.write("c" * 20, {"step": np.array(1)})
    store.checkpoints.write("c" * 20, {"step": np.array(2)})
    assert store.checkpoints.read("c" * 20)["step"] == 2
    (path,) = (store_path / "checkpoints").iterdir()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert [[str(p) for p in problems] for _, problems in store.verify()] == [["checkpoint: content changed"]]
    assert store.checkpoints.read("c" * 20) is None


def test_tensors_of_every_kind_survive_packing():
    arrays = {
        "floats": np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32).T,
        "flags": np.array([True, False]),
        "whole": np.array(7),
        "none": np.empty(0, dtype=np.float32),
    }
    again = unpack(pack(arrays))
    for name, array in arrays.items():
        assert np.array_equal(again[name], array)
        assert again[name].dtype == array.dtype


def test_foreign_and_broken_places_are_refused(tmp_path):
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("precious")
    with pytest.raises(StoreError, match=r"thesis\.tex"):
        Store(foreign)
    assert os.listdir(foreign) == ["thesis.tex"]
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="a directory"):
        Store(tmp_path / "file")
    with pytest.raises(StoreError, match="an existing store"):
        Store(tmp_path / "absent", create=False)
    assert not (tmp_path / "absent").exists()
    for marker in ("{", '{"format": 99}', "[]"):
        other = tmp_path / f"marker{len(marker)}"
        Store(other)
        (other / "recombine.json").write_text(marker)
        with pytest.raises(StoreError, match="format"):
            Store(other)


def test_prefix_finds_one_run(store_path):
    store = Store(store_path)
    for seed in range(17):  # two of them begin with the same digit
        saved(store, seed=seed)
    keys = sorted(store.keys())
    shared = next(a[0] for a, b in pairwise(keys) if a[0] == b[0])
    assert store[keys[0]].key == keys[0]
    for prefix in (shared, "x", ""):
        with pytest.raises(InvalidValue, match="run"):
            store[prefix]


def test_leftovers_of_dead_processes_are_found(store_path):
    store = Store(store_path)
    run = saved(store)
    (store_path / "tmp" / f"{'d' * 20}.123").mkdir()
    store.checkpoints.write(run.key, {"step": np.array(1)})
    (store_path / "checkpoints" / f".{'e' * 20}.123").write_bytes(b"half")
    found = dict(store.leftovers("tmp", "checkpoints"))
    assert sorted(found) == sorted([run.key, "d" * 20, "e" * 20])
    with store.lock("d" * 20):
        assert not store.delete_leftover("d" * 20, found["d" * 20])


def test_adopting_copies_whole_runs(store_path, tmp_path):
    run = saved(Store(store_path))
    other = Store(tmp_path / "other")
    other.adopt(run)
    other.adopt(run)
    assert other.find(run.key).problems() == []
    assert list(other.table().index) == [run.key]


def _counted(path, expected, barrier):
    barrier.wait()
    for _ in range(5):
        assert len(Store(path).table()) == expected


def assert_many_may_open(path, expected):
    """Four processes open a store at the same moment, and each finds the runs that are in it."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(4)
    workers = [context.Process(target=_counted, args=(path, expected, barrier)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0, 0]


def test_processes_may_create_a_store_at_once(tmp_path):
    for attempt in range(5):
        assert_many_may_open(tmp_path / str(attempt), 0)


@pytest.mark.parametrize("content", [b"not a database at all" * 50, None], ids=["garbage", "deleted"])
def test_processes_may_mend_an_index_at_once(store_path, content):
    for number in range(3):
        saved(Store(store_path), seed=number)
    for _ in range(4):
        (store_path / "index.tsv").unlink(missing_ok=True)
        if content is not None:
            (store_path / "index.tsv").write_bytes(content)
        assert_many_may_open(store_path, 3)


def test_a_run_repaired_by_another_process_is_not_put_aside(store_path, monkeypatch):
    """The check and the move are under the run's lock, and the check is made again there."""
    store = Store(store_path)
    run = saved(store)
    path = run.path / "weights.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    damage, calls = Run.damage, []

    def repaired_after_the_first_look(self):
        found = damage(self)
        if not calls:
            path.write_bytes(whole)
        calls.append(found)
        return found

    monkeypatch.setattr(Run, "damage", repaired_after_the_first_look)
    assert store.find(run.key) is not None
    assert calls[0]
    assert not list((store_path / "damaged").iterdir())


def test_a_damaged_run_that_is_being_worked_on_is_left_alone(store_path):
    store = Store(store_path)
    run = saved(store)
    (run.path / "weights.safetensors").write_bytes(b"")
    with store.lock(run.key):
        assert store.find(run.key) is None
        assert run.path.exists()
        assert not store.remove(run.key)
        assert not store.discard_checkpoint(run.key)
    assert store.find(run.key) is None
    assert not run.path.exists()


def test_unreadable_is_not_damaged(store_path, monkeypatch):
    store = Store(store_path)
    run = saved(store)

    def refused(path, *_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("recombine.manifest.read", refused)
    with pytest.raises(StoreError, match="Permission denied"):
        store.find(run.key)
    assert run.path.exists()


def test_discarding_a_checkpoint_leaves_a_finished_run(store_path):
    store = Store(store_path)
    run = saved(store)
    store.checkpoints.write(run.key, {"step": np.array(1)})
    assert store.discard_checkpoint(run.key)
    assert store.find(run.key) is not None


def test_time_is_counted_over_interruptions(store_path):
    from recombine.sweep.group import Group

    spec = small_spec("mlp", steps=400)
    import torch

    group = Group(Store(store_path), {spec.digest: spec}, torch.device("cpu"))
    for _ in group.fit():
        break
    group.checkpoint()
    again = Group(Store(store_path), {spec.digest: spec}, torch.device("cpu"))
    assert again.started == group.started
    assert again.spent == group.spent
    assert again.spent[0] > 0
    for _ in again.fit():
        pass
    assert again.spent[0] > group.spent[0]


# -- sweeps ------------------------------------------------------------------------------------------------------------


def test_members_that_differ_are_saved_as_if_alone(store_path, tmp_path):
    """Other pictures, other hold-outs, one ensemble: each is examined on its own task, and found under its own key."""
    tasks = [{"sigma": 1.0}, {"polarity": "dark"}, {"holdout": "none"}, {"sigma": 2.0}, {"holdout": "center:3:4"}]
    specs = [small_spec("mlp", seed=seed, task=task) for seed, task in enumerate(tasks)]
    together = train(specs, store_path, device="cpu", members=len(specs))
    alone = [train([spec], tmp_path / "alone", device="cpu")[0] for spec in specs]
    assert together[0].result["provenance"]["members_together"] == len(specs)
    for spec, one, other in zip(specs, together, alone, strict=True):
        assert one.key == other.key == spec.digest
        assert one.spec == spec
        np.testing.assert_equal(one.scores, other.scores)
        for name, array in other.arrays().items():
            np.testing.assert_array_equal(one.arrays()[name], array, err_msg=name)


def test_training_twice_trains_once(store_path):
    specs = [small_spec("mlp", seed=seed) for seed in range(2)]
    first = train(specs, store_path)
    stamps = [os.stat(run.path / "weights.safetensors").st_mtime_ns for run in first]
    watched = []
    second = train([*specs, specs[0]], store_path, watch=watched.append)
    assert watched == []
    assert [os.stat(run.path / "weights.safetensors").st_mtime_ns for run in second] == [*stamps, stamps[0]]
    assert [run.key for run in second] == [specs[0].digest, specs[1].digest, specs[0].digest]


@pytest.mark.parametrize("damage", ["flip", "truncate"])
def test_a_damaged_run_is_trained_again_to_the_same_bits(store_path, damage):
    spec = small_spec("cnn")
    (run,) = train([spec], store_path)
    path = run.path / "weights.safetensors"
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[-3] ^= 0x40
    path.write_bytes(bytes(changed) if damage == "flip" else whole[:-8])
    (again,) = train([spec], store_path)
    assert (again.path / "weights.safetensors").read_bytes() == whole
    assert all(not problems for _, problems in Store(store_path).verify())


def test_stored_module_scores_what_the_run_says(store_path):
    import torch

    from recombine.training import evaluate, scores

    (run,) = train([small_spec("cnn")], store_path)
    found = scores(evaluate(run.spec.task, run.module(), torch.device("cpu")))
    assert found == pytest.approx(run.scores, rel=1e-4)
    assert len(run.arrays()["history"]) == 3  # 12 steps, 4 an epoch
    assert {"torch", "device", "precision", "commit", "recombine", "started", "finished"} <= set(
        run.result["provenance"]
    )


def test_a_diverged_run_is_kept_as_such_and_left_out_of_the_mean(store_path):
    calm, wild = small_spec("mlp"), small_spec("mlp", lr=1e18, steps=40)
    runs = train([calm, wild, wild.replace(seed=1)], store_path)
    assert [run.status for run in runs] == ["done", "diverged", "diverged"]
    rows = summarize(runs)
    assert [(row.seeds, row.diverged) for row in rows] == [(1, 0), (0, 2)]


def test_progress_counts_runs_and_steps(store_path):
    seen = []
    specs = [small_spec("mlp", seed=seed) for seed in range(3)]
    train(specs, store_path, watch=seen.append)
    assert [p.finished for p in seen] == sorted(p.finished for p in seen)
    assert seen[-1].runs == 3
    assert seen[-1].steps_done == 36
    assert seen[-1].steps_left == 0
    assert all(p.steps_done + p.steps_left == 36 for p in seen)


def test_no_room_is_said_before_training(store_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 9, 1))
    with pytest.raises(StoreError, match="MB free"):
        train([small_spec("mlp")], store_path)
    assert list(Store(store_path).verify()) == []


def test_summary_names_what_differs(store_path):
    specs = [small_spec("mlp", seed=s, task={"encoding": e}) for e in ("bump", "rate") for s in range(2)]
    rows = summarize(train(specs, store_path))
    assert [row.label for row in rows] == ["encoding=bump", "encoding=rate"]
    assert [row.seeds for row in rows] == [2, 2]
    values = [Run(s.digest, store_path / "runs" / s.digest).scores["id_mse"] for s in specs[:2]]
    assert rows[0].scores["id_mse"].mean == pytest.approx(np.mean(values))
    assert rows[0].scores["id_mse"].deviation == pytest.approx(np.std(values, ddof=1))


def test_result_file_is_readable_json(store_path):
    (run,) = train([small_spec("mlp", task={"holdout": "none"})], store_path)
    assert json.loads((run.path / "result.json").read_text())["scores"]["ood_mse"] is None
    assert np.isnan(run.scores["ood_mse"])


def test_threads_may_create_a_store_at_once(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        for attempt in range(25):
            made = [pool.submit(Store, tmp_path / str(attempt)) for _ in range(4)]
            assert [future.result().keys() for future in made] == [[]] * 4
