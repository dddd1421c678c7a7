"""How a sweep looks at what the store has already."""

import pytest

from recombine.errors import InvalidValue, StoreError
from recombine.store import Store, filesystems
from recombine.sweep import train
from tests.small import small_spec


def spoil(run):
    path = run.path / "weights.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_bytes_are_read_and_names_are_taken_for_whole(store_path):
    specs = small_spec("mlp").seeds(range(3))
    first = train(specs, store_path)
    right = first[1].weights()
    spoil(first[1])
    taken = train(specs, store_path, check="names")
    assert [run.key for run in taken] == [run.key for run in first]
    assert taken[0].scores == first[0].scores
    with pytest.raises(StoreError, match="as it was written"):
        taken[1].weights()
    again = train(specs, store_path)
    assert {name: array.tobytes() for name, array in again[1].weights().items()} == {
        name: array.tobytes() for name, array in right.items()
    }


def test_names_train_what_is_missing(store_path):
    train(small_spec("mlp"), store_path)
    assert len(train(small_spec("mlp").seeds(range(2)), store_path, check="names")) == 2
    assert len(Store(store_path)) == 2


def test_another_way_is_refused(store_path):
    with pytest.raises(InvalidValue, match="check"):
        train(small_spec("mlp"), store_path, check="hope")


def test_a_cluster_needs_locks_that_all_hosts_see(store_path, tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    (tmp_path / "mountinfo").write_text(f"2 1 0:2 / {store_path.parent} rw - fuse.sshfs host:/ rw\n")
    monkeypatch.setattr(filesystems, "MOUNTS", tmp_path / "mountinfo")
    monkeypatch.setenv("RECOMBINE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(StoreError, match=r"fuse\.sshfs is not one"):
        train(small_spec("mlp"), store_path, scheduler="tcp://127.0.0.1:1")
    assert train(small_spec("mlp", steps=1), store_path)[0].status == "done"
