"""Every reader of a file that may come from a stranger: a value or one clear line, whatever the bytes.

Readers run no code and touch nothing beside what they are given; bytes are random, cut, flipped, spliced, or JSON with
NaN, Infinity, great depth and foreign types.
"""

import json
import pickle

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recombine.cli.sweep import read_sweep
from recombine.data import open_images
from recombine.errors import RecombineError
from recombine.reproduction.explorer import kept_decoders
from recombine.reproduction.results import EXPLORER, Results
from recombine.specs import RunSpec
from recombine.store import Store, from_pretrained
from recombine.store.names import SCORES
from tests.small import small_spec
from tests.store.saving import saved

QUIET = settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


class Touch:
    """A pickle that would write a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def everything(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.fixture
def place(tmp_path):
    (tmp_path / "given").mkdir()
    return tmp_path / "given"


def run_file(name):
    """A reader of one file of a finished run."""

    def read(folder, content):
        store = Store(folder / "store")
        run = store.run(small_spec("mlp").digest) if len(store) else saved(store)
        path = run.path / name
        before = path.read_bytes()
        path.write_bytes(content)
        try:
            again = store.run(run.key)
            store.table()
            list(store.verify())
            return (again.result, again.spec, again.weights(), again.arrays())
        finally:
            path.write_bytes(before)

    return read


def checkpoint(folder, content):
    store = Store(folder / "store")
    key = "0123456789abcdef0123"
    (store.path / "checkpoints" / key).write_bytes(content)
    return store.checkpoints.read(key)


def index(folder, content):
    store = Store(folder / "store")
    if not len(store):
        saved(store)
    (store.path / "index.tsv").write_bytes(content)
    assert len(store.table("seed == 0")) == 1


def sweep_file(folder, content):
    (folder / "grid.toml").write_bytes(content)
    return read_sweep(folder / "grid.toml", [])


def decoders(folder, content):
    results = Results(folder / "results")
    results.digests.replace({EXPLORER: content})
    return kept_decoders(results)


def images(ending):
    def read(folder, content):
        (folder / f"images{ending}").write_bytes(content)
        return open_images(folder / f"images{ending}")

    return read


def pretrained(name):
    """A reader of one file of a folder in the hub's layout."""

    def read(folder, content):
        if not (folder / "model").exists():
            spec = small_spec("mlp")
            weights = {key: tensor.numpy() for key, tensor in spec.module().state_dict().items()}
            result = {"status": "done", "scores": dict.fromkeys(SCORES), "steps": 1, "provenance": {"finished": 0.0}}
            store = Store(folder / "store")
            store.save(spec.digest, spec.to_json(), result, weights, {}).save_pretrained(folder / "model")
        path = folder / "model" / name
        before = path.read_bytes()
        path.write_bytes(content)
        try:
            return from_pretrained(folder / "model")
        finally:
            path.write_bytes(before)

    return read


READERS = {
    "config.json": pretrained("config.json"), "model.safetensors": pretrained("model.safetensors"),
    "spec": lambda folder, content: RunSpec.from_json(content.decode(errors="replace")),
    "spec.json": run_file("spec.json"), "result.json": run_file("result.json"),
    "manifest.json": run_file("manifest.json"), "weights": run_file("weights.safetensors"),
    "checkpoint": checkpoint, "index": index, "sweep file": sweep_file, "decoders": decoders,
    "npz": images(".npz"), "hdf5": images(".h5"),
}  # fmt: skip
SPEC = small_spec("mlp").to_json()
HOSTILE = {
    "nothing": b"", "zeros": bytes(2000), "pickle": None, "deep list": b"[" * 10**6, "deep object": b'{"a":' * 10**5,
    "deep TOML": b"a = " + b"[" * 10**5, "NaN": SPEC.replace("0.001", "NaN").encode(),
    "Infinity": SPEC.replace("0.001", "Infinity").encode(),
    "minus infinity": SPEC.replace("0.001", "-Infinity").encode(),
    "huge number": SPEC.replace("0.001", "1e999").encode(), "long integer": SPEC.replace("0.001", "9" * 5000).encode(),
    "SQL": SPEC.replace('"mlp"', "\"x'; DROP TABLE heads; --\"").encode(),
    "HTML": SPEC.replace('"mlp"', '"<script>alert(1)</script>"').encode(), "no UTF-8": b"\xff\xfe" + SPEC.encode(),
    "null": b"null", "text": b'"x"', "number": b"7", "list": b"[1, 2]", "surrogate": b'{"a": "\\ud800"}',
    "safetensors length": (2**63 - 1).to_bytes(8, "little") + b"{}",
    "safetensors lie": (2).to_bytes(8, "little") + b"{}x",
    "zip": b"PK\x03\x04" + bytes(100), "hdf5": b"\x89HDF\r\n\x1a\n" + bytes(300), "gzip": b"\x1f\x8b" + bytes(100),
    "SQLite": b"SQLite format 3\x00" + bytes(500),
}  # fmt: skip


def read_safely(reader, place, content):
    """A value, or one line."""
    outside = everything(place.parent) if not list(place.iterdir()) else None
    try:
        READERS[reader](place, content)
    except RecombineError as error:
        message = str(error)
        assert len(message.splitlines()) == 1
        assert len(message) < 2000
    if outside is not None:
        assert {path for path in everything(place.parent) if place not in path.parents} == set(outside)


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("reader", READERS)
def test_hostile_files_are_one_line(reader, case, place, monkeypatch):
    monkeypatch.setenv("RECOMBINE_CACHE", str(place / "cache"))
    touched = place.parent / "touched"
    content = pickle.dumps(Touch(touched)) if HOSTILE[case] is None else HOSTILE[case]
    read_safely(reader, place, content)
    assert not touched.exists()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("reader", READERS)
def test_any_bytes_are_a_value_or_one_line(reader, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("RECOMBINE_CACHE", str(tmp_path_factory.mktemp("cache")))
    place = tmp_path_factory.mktemp("given") / "folder"  # what lies beside it is looked at again and again
    place.mkdir()
    whole = small_spec("mlp").to_json().encode()

    @QUIET
    @given(st.binary(max_size=300), st.integers(0, len(whole)), VALUES)
    def check(noise, cut, value):
        for content in (noise, whole[:cut] + noise + whole[cut + len(noise) :], json.dumps(value).encode()):
            read_safely(reader, place, content)

    check()
