"""Other people's files: folders that are no stores, links, stray entries, devices, and what cannot be written."""

import ctypes
import errno
import fcntl
import hashlib
import json
import os
import shutil
import threading
import time

import numpy as np
import pytest

from recombine.errors import InvalidValue, StoreError
from recombine.manifest import manifest_text
from recombine.store import Run, Store
from recombine.store.run import spec_key
from recombine.sweep import train
from tests.command import captured as run
from tests.command import forked
from tests.small import small_spec
from tests.store.saving import saved


def tree(folder):
    """Everything below a folder, links as links."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("names", [("runs", "checkpoints", "tmp"), ("tmp",), (".DS_Store",), ("index.tsv",)])
def test_a_folder_without_the_marker_is_refused_and_left_alone(tmp_path, names, capsys, monkeypatch):
    """A: a user's own `tmp` and `checkpoints` do not make a folder a store, and nothing in them is ever deleted."""
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis.tex").write_text("precious")
    before = tree(tmp_path)
    with pytest.raises(StoreError, match="an empty or new directory"):
        Store(tmp_path)
    monkeypatch.chdir(tmp_path)
    code, _, err = run(["train", "--store", "."], capsys)
    assert code == 2
    assert names[0] in err
    code, _, err = run(["runs", "prune", "--store", "."], capsys)
    assert code == 2
    assert tree(tmp_path) == before


def test_a_store_whose_making_was_cut_short_is_made(tmp_path):
    (tmp_path / ".recombine.json.4711").write_text('{"fo')
    train([small_spec("mlp")], tmp_path)
    assert not list(tmp_path.glob(".recombine*"))


def test_prune_deletes_only_names_of_ours(store_path, capsys):
    store = Store(store_path)
    key = saved(store).key
    kept = []
    for folder in ("tmp", "damaged", "checkpoints", "locks", "runs"):
        for name in ("thesis.tex", "notes.1", f"{key}x.12", "weights"):
            (store_path / folder / name).write_text("precious")
            kept.append(store_path / folder / name)
    ours = [store_path / "tmp" / f"{'d' * 20}.12", store_path / "damaged" / f"{'d' * 20}.12"]
    for folder in ours:
        (folder / "deep").mkdir(parents=True)
    code, out, _ = run(["runs", "prune"], capsys)
    assert code == 0
    assert "deleted 2 leftovers" in out
    assert all(path.exists() for path in kept)
    assert not any(path.exists() for path in ours)


@pytest.mark.parametrize("folder", ["runs", "checkpoints", "locks", "damaged", "tmp"])
def test_links_out_of_a_store_are_not_followed(tmp_path, store_path, folder, capsys):
    """B: in a received store a folder may be a link to the user's own files."""
    home = tmp_path / "home"
    home.mkdir()
    (home / f"{'a' * 20}.1").write_text("precious")
    saved(Store(store_path))
    shutil.rmtree(store_path / folder)
    (store_path / folder).symlink_to(home)
    before = tree(home)
    for words in (["runs", "prune"], ["runs", "list"], ["train", "--size", 8, "--epochs", 1], ["verify", store_path]):
        code, _, err = run(words, capsys)
        assert code == 2
        assert err.count("\n") == 1
        assert f"'{folder}' is a folder, not a link" in err
    assert tree(home) == before


@pytest.mark.parametrize("name", ["index.tsv", "recombine.json"])
def test_linked_files_are_not_followed(tmp_path, store_path, name, capsys):
    key = saved(Store(store_path)).key
    target = tmp_path / "precious"
    target.write_bytes((store_path / name).read_bytes() if (store_path / name).exists() else b"")
    before = target.read_bytes()
    (store_path / name).unlink(missing_ok=True)
    (store_path / name).symlink_to(target)
    code, out, _ = run(["runs", "list"], capsys)
    assert (code, key[:10] in out) == ((2, False) if name == "recombine.json" else (0, True))
    assert target.read_bytes() == before


def test_links_inside_a_run_are_damage_and_are_moved_as_links(tmp_path, store_path):
    store = Store(store_path)
    run_ = saved(store)
    away = tmp_path / "away"
    shutil.move(run_.path, away)
    run_.path.symlink_to(away)
    assert next(str(p) for p in run_.problems()) == "not a folder"
    with pytest.raises(StoreError, match="an undamaged file of this run"):
        run_.weights()
    assert store.find(run_.key) is None
    assert len(os.listdir(away)) == 5  # what it points to is as it was
    weights = away / "weights.safetensors"
    again = saved(store, seed=1)
    (again.path / "weights.safetensors").unlink()
    (again.path / "weights.safetensors").symlink_to(weights)
    assert [str(p) for p in again.problems()] == ["weights.safetensors: not a regular file"]
    lock = store.lock("b" * 20)
    lock.path.symlink_to(tmp_path / "made_through_a_link")
    with pytest.raises(StoreError):
        lock.acquire()
    assert not (tmp_path / "made_through_a_link").exists()


def test_odd_entries_are_reported_and_passed_over(store_path, capsys):
    """G: verify goes on after every odd entry, and waits for no pipe or device."""
    store = Store(store_path)
    whole, odd, piped = saved(store), saved(store, seed=1), saved(store, seed=2)
    for name in (".DS_Store", "0", "zzz"):
        (store_path / "runs" / name).write_bytes(b"")
    (store_path / "runs" / "weights").mkdir()
    (store_path / "notes.txt").write_text("mine")
    (whole.path / ".DS_Store").write_bytes(b"")
    (odd.path / "weights.safetensors").unlink()
    (odd.path / "weights.safetensors").mkdir()
    (piped.path / "arrays.safetensors").unlink()
    os.mkfifo(piped.path / "arrays.safetensors")
    (store_path / "checkpoints" / ("c" * 20)).symlink_to("/dev/zero")
    code, out, _ = run(["verify", store_path], capsys)
    assert code == 1
    assert "4 checked, 3 damaged" in out
    for text in (
        f"{odd.key}: weights.safetensors: not a regular file", f"{piped.key}: arrays.safetensors: not a regular file",
        f"{'c' * 20}: checkpoint: content changed", "notes.txt: does not belong here", "weights: does not belong here",
    ):  # fmt: skip
        assert text in out
    assert out.count(".DS_Store: does not belong here") == 2
    assert store.find(whole.key) is not None  # a stray file is not damage


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_verify_waits_for_no_pipe_or_device(store_path, kind):
    """G: in the place of a run's file, and nothing else odd before it."""
    path = saved(Store(store_path)).path / "arrays.safetensors"
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    code, out, err = with_rights_checked(["verify", store_path])
    assert (code, err) == (1, "")
    assert "arrays.safetensors: not a regular file" in out
    assert "1 checked, 1 damaged" in out


def test_a_checkpoint_that_cannot_be_deleted_stops_nothing(store_path, monkeypatch, capsys):
    """18: the run is saved by then; the next sweep deletes it."""

    def refuse(path, *words, unlink=os.unlink, **how):
        if "checkpoints" in str(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        unlink(path, *words, **how)

    words = ["train", "--size", 8, "--decoder", "mlp:width=4:depth=1", "--steps", 30, "--samples", 20]
    words += ["--checkpoint", 0, "--device", "cpu"]
    with monkeypatch.context() as failing:
        failing.setattr(os, "unlink", refuse)
        failing.setattr("pathlib.Path.unlink", lambda self, missing_ok=False: refuse(self))
        code, out, err = run(words, capsys)
    assert code == 0
    assert all("trained" in line for line in err.splitlines()), err  # progress, which a slow machine shows
    assert "1 run in" in out
    assert len(os.listdir(store_path / "checkpoints")) == 1
    assert run([*words, "--seeds", 2], capsys).code == 0
    assert os.listdir(store_path / "checkpoints") == []


def test_stray_entries_alone_are_no_damage(store_path, capsys):
    saved(Store(store_path))
    (store_path / "runs" / ".DS_Store").write_bytes(b"")
    assert run(["verify", store_path], capsys)[0] == 0
    assert "1 finished run" in run(["runs", "list"], capsys)[1]


def test_a_spec_of_another_run_is_not_served(store_path):
    """F: a manifest that was sealed again over another spec."""
    store = Store(store_path)
    run_, other = saved(store), saved(store, seed=1)
    shutil.copy(other.path / "spec.json", run_.path / "spec.json")
    digests = {**run_.digests(), "spec.json": other.digests()["spec.json"]}
    (run_.path / "manifest.json").write_text(manifest_text(run_.key, digests))
    assert [str(p) for p in run_.problems()] == ["spec.json: the spec of another run"]
    with pytest.raises(StoreError):
        run_.spec  # noqa: B018
    assert store.find(run_.key) is None
    with pytest.raises(InvalidValue, match="the key of this spec"):
        store.save("a" * 20, small_spec("mlp").to_json(), {}, {}, {})
    assert spec_key(small_spec("mlp").to_json().encode()) == small_spec("mlp").digest


def test_a_whole_run_under_another_key_is_not_served(store_path):
    store = Store(store_path)
    run_ = saved(store)
    shutil.copytree(run_.path, store_path / "runs" / ("b" * 20))
    assert store.find("b" * 20) is None


def test_a_renamed_checkpoint_is_not_trained_on(store_path, tmp_path):
    """F: a checkpoint belongs to its run; under another key it is passed over, and the run starts from its start."""
    from recombine.sweep.group import Group

    one, other = small_spec("mlp", steps=60), small_spec("mlp", steps=60, seed=1)
    import torch

    group = Group(Store(store_path), {one.digest: one}, torch.device("cpu"))
    for _ in group.fit():
        break
    group.checkpoint()
    folder = store_path / "checkpoints"
    (folder / one.digest).rename(folder / other.digest)
    assert [bool(problems) for _, problems in Store(store_path).verify()] == [True]
    (trained,) = train([other], store_path)
    (alone,) = train([other], tmp_path / "alone")
    for name, weight in alone.weights().items():
        np.testing.assert_array_equal(trained.weights()[name], weight)


@pytest.mark.parametrize("runs", [0, 1])
@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_one_line(store_path, monkeypatch, capsys, number, runs):
    """G: also in a store that has runs, where some of what is asked for is trained already."""
    words = ["train", "--size", 8, "--decoder", "mlp:width=4:depth=1", "--steps", 2, "--samples", 20, "--device", "cpu"]
    if runs:
        assert run([*words, "--seeds", runs], capsys).code == 0

    def refuse(descriptor, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    code, _, err = run([*words, "--seeds", 2], capsys)
    assert code == 2
    assert "a file system with file locks" in err
    assert err.count("\n") == 1
    if runs:  # what is trained needs no lock
        assert run([*words, "--seeds", runs], capsys).code == 0
        assert run(["runs", "list"], capsys).code == 0


def test_locks_and_leftovers_of_killed_processes_are_cleaned_by_the_next_sweep(store_path):
    """G: lock files, half-written runs and checkpoints; what is in use stays."""
    store = Store(store_path)
    held = store.lock("b" * 20)
    assert held.acquire(wait=False)
    (store_path / "locks" / ("a" * 20)).write_bytes(b"")
    (store_path / "locks" / "mine.txt").write_bytes(b"")
    (store_path / "tmp" / f"{'a' * 20}.12").mkdir()
    (store_path / "tmp" / f"{'b' * 20}.12").mkdir()
    (store_path / "checkpoints" / f".{'a' * 20}.12").write_bytes(b"")
    (store_path / ".recombine.json.12").write_bytes(b"")
    train([small_spec("mlp")], store_path)
    assert sorted(os.listdir(store_path / "locks")) == ["b" * 20, "mine.txt"]
    assert os.listdir(store_path / "tmp") == [f"{'b' * 20}.12"]
    assert os.listdir(store_path / "checkpoints") == []
    assert not list(store_path.glob(".*"))
    held.release()
    assert os.listdir(store_path / "locks") == ["mine.txt"]


def test_two_waiters_never_hold_one_lock(store_path):
    """A lock whose file is removed at release still keeps everybody else out."""
    store, inside, most = Store(store_path), [0], [0]

    def work():
        for _ in range(25):
            with store.lock("a" * 20):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0.0005)  # so that others would come in
                inside[0] -= 1

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert most == [1]


CAPABILITIES_VERSION = 0x20080522
PASSING_OVER_MODES = 0b110
"""The capabilities CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, as bits."""


def give_up_rights():
    """Give up root's right to pass over the modes of files."""
    if os.geteuid() != 0:
        return
    system, header, sets = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(CAPABILITIES_VERSION), (ctypes.c_uint32 * 6)()
    assert system.capget(header, sets) == 0
    sets[0] &= ~PASSING_OVER_MODES  # the effective set; permitted and inheritable ones follow
    assert system.capset(header, sets) == 0


def with_rights_checked(words):
    return forked(words, give_up_rights).wait()


@pytest.fixture
def read_only(store_path):
    """A store that may be read but not written."""
    for seed in range(2):
        saved(Store(store_path), seed=seed)
    entries = [store_path, *store_path.rglob("*")]
    for path in entries:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield store_path
    for path in entries:
        path.chmod(0o755)


def test_what_cannot_be_written_can_be_read(read_only, tmp_path):
    """14: `runs list` and `export` read without writing."""
    code, out, err = with_rights_checked(["runs", "list", "--store", read_only])
    assert (code, err) == (0, "")
    assert "2 finished runs" in out
    code, out, err = with_rights_checked(["runs", "export", tmp_path / "table.csv", "--store", read_only])
    assert (code, err) == (0, "")
    assert (tmp_path / "table.csv").read_text().count("done") == 2
    code, _, err = with_rights_checked(["train", "--size", 8, "--epochs", 1, "--store", read_only])
    assert code == 2
    assert err.count("\n") == 1
    assert "Permission denied" in err


def test_unreadable_is_one_line_and_not_called_damage(read_only):
    """14: what the system does not let us read is named, with another exit code than damage; the rest is checked."""
    unreadable, other = sorted(os.listdir(read_only / "runs"))
    (read_only / "runs" / unreadable).chmod(0o000)
    code, out, err = with_rights_checked(["verify", read_only])
    assert "2 checked, 0 damaged, 1 could not be read" in out
    assert (code, err) == (2, "")
    assert "Permission denied" in out
    assert unreadable in out
    damaged = read_only / "runs" / other / "weights.safetensors"
    damaged.chmod(0o644)
    damaged.write_bytes(b"")
    code, out, err = with_rights_checked(["verify", read_only])
    assert "2 checked, 1 damaged, 1 could not be read" in out
    assert (code, err) == (1, "")
    assert f"{other}: weights.safetensors: content changed" in out
    (read_only / "runs").chmod(0o000)
    for words in (["runs", "list", "--store"], ["verify"], ["runs", "show", "ab", "--store"]):
        code, out, err = with_rights_checked([*words, read_only])
        assert code == 2
        assert "Permission denied" in out + err
        assert "Traceback" not in err


def test_results_of_another_form_hide_no_other_run(store_path, capsys):
    """A sealed run whose result is not one is named, and the others are listed."""
    store = Store(store_path)
    saved(store)
    for seed, result in enumerate(({"scores": {}}, [1], {"status": "done", "scores": [1], "provenance": {}}), 1):
        spec = small_spec("mlp", seed=seed)
        contents = {"spec.json": spec.to_json().encode(), "result.json": json.dumps(result).encode()}
        contents |= {"weights.safetensors": b"", "arrays.safetensors": b""}
        folder = store_path / "runs" / spec.digest
        folder.mkdir()
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
        for name, content in {**contents, "manifest.json": manifest_text(spec.digest, digests).encode()}.items():
            (folder / name).write_bytes(content)
    code, out, _ = run(["runs", "list"], capsys)
    assert code == 2
    assert "1 finished run in" in out
    assert "cannot be listed: " in out
    assert run(["runs", "show", spec.digest], capsys)[0] == 2
    assert run(["runs", "export", store_path.parent / "all.csv"], capsys)[0] == 2


def test_a_run_put_aside_by_another_process_meanwhile_is_absent(store_path, monkeypatch):
    store = Store(store_path)
    run_ = saved(store)

    def moved_away(self):
        shutil.rmtree(self.path)
        raise StoreError("store: gone")

    monkeypatch.setattr(Run, "damage", moved_away)
    assert store.find(run_.key) is None


def test_a_copy_without_its_empty_folders_can_be_pruned(store_path, capsys):
    """As git, archives and buckets copy stores."""
    run_ = saved(Store(store_path))
    for name in ("tmp", "locks", "damaged", "checkpoints"):
        shutil.rmtree(store_path / name)
    assert run(["runs", "list"], capsys)[0] == 0
    assert not (store_path / "tmp").exists()
    assert run(["runs", "prune", run_.key], capsys)[0] == 0
    assert len(Store(store_path)) == 0
