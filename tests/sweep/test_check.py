"""How a sweep looks at what the store has already."""

import pytest

from recombine.errors import StoreError
from recombine.store import Store
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
    with pytest.raises(StoreError):
        taken[1].weights()
    again = train(specs, store_path)
    assert {name: array.tobytes() for name, array in again[1].weights().items()} == {
        name: array.tobytes() for name, array in right.items()
    }


def test_names_train_what_is_missing(store_path):
    train(small_spec("mlp"), store_path)
    assert len(train(small_spec("mlp").seeds(range(2)), store_path, check="names")) == 2
    assert len(Store(store_path)) == 2
