"""Keys, weights, measurements, files and exit codes are what they were before the code was reduced."""

import shutil
import tarfile

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import recombine as rc
from tests import frozen
from tests.command import run

EXPECTED = frozen.expected()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("frozen")
    with tarfile.open(frozen.PACKED) as packed:
        packed.extractall(folder, filter="data")
    return folder


@pytest.fixture
def copies(folders, tmp_path):
    shutil.copytree(folders, tmp_path / "frozen")
    return tmp_path / "frozen"


@pytest.mark.parametrize("name", EXPECTED["keys"])
def test_keys(name):
    key, stored = EXPECTED["keys"][name]
    assert frozen.varied_specs()[name].digest == key
    assert rc.RunSpec.from_json(stored).digest == key
    assert frozen.varied_specs()[name].to_json() == stored


@pytest.mark.parametrize("name", frozen.DECODERS)
def test_weights_and_scores(name, tmp_path):
    (trained,) = rc.train(frozen.small_spec(name), tmp_path, device="cpu")
    before = load_file(frozen.FROZEN / f"{name}.safetensors")
    weights = trained.weights()
    assert set(weights) == set(before)
    for part, value in before.items():
        if frozen.SAME_MACHINE:
            assert np.array_equal(weights[part], value), part
        else:
            np.testing.assert_allclose(weights[part], value, rtol=1e-4, atol=1e-6)
    assert trained.scores == pytest.approx(EXPECTED["scores"][name], rel=1e-9 if frozen.SAME_MACHINE else 1e-3)


def assert_same(now, before, tolerance):
    assert set(now) == set(before)
    for name, (shape, total, weighted) in before.items():
        assert now[name][0] == shape, name
        # a weighted sum may be nearly 0 where the values are not
        scale = max(abs(total), abs(weighted), 1e-3)
        assert np.allclose(now[name][1:], [total, weighted], rtol=tolerance, atol=tolerance * scale), name


def test_diagnoses(folders, tmp_path):
    stored = next(own for own in rc.Store(folders / "store") if own.key == frozen.small_spec("mlp").digest)
    for name, result in frozen.diagnoses(stored, tmp_path).items():
        before, now = EXPECTED["diagnoses"][name], frozen.plain(result)  # there may be more variables now
        assert_same({own: now[own] for own in before}, before, 1e-6 if frozen.SAME_MACHINE else 1e-3)


def test_a_store_opens_and_serves(copies):
    store = rc.Store(copies / "store")
    keys = {frozen.small_spec(name).digest for name in frozen.DECODERS}
    assert {run.key for run in store} == keys
    before = {path: path.stat().st_mtime_ns for path in (copies / "store" / "runs").iterdir()}
    rc.train([frozen.small_spec(name) for name in frozen.DECODERS], store, device="cpu")
    assert {path: path.stat().st_mtime_ns for path in (copies / "store" / "runs").iterdir()} == before
    for stored in store:
        assert all(torch.isfinite(value).all() for value in stored.module().state_dict().values())


def test_a_checkpoint_goes_on_to_the_same_weights(copies, tmp_path):
    (checkpoint,) = (copies / "store" / "checkpoints").iterdir()
    assert checkpoint.name == frozen.long_spec().digest
    first = []
    (resumed,) = rc.train(frozen.long_spec(), copies / "store", device="cpu", watch=first.append)
    (alone,) = rc.train(frozen.long_spec(), tmp_path / "alone", device="cpu")
    assert first[0].steps_left < frozen.LONG * 3 / 4
    for name, value in alone.weights().items():
        assert np.array_equal(resumed.weights()[name], value) or not frozen.SAME_MACHINE


def test_results_open_and_go_on(copies):
    before = rc.Results.existing(copies / "results").dataset("encoding_width").load()
    preset = rc.PRESETS["quick"].changed(frozen.TINY)
    rc.reproduce(rc.STUDIES["encoding_width"], preset, copies / "runs", copies / "results", device="cpu")
    after = rc.Results.existing(copies / "results").dataset("encoding_width")
    assert_same(frozen.plain(after), frozen.plain(before), 1e-6 if frozen.SAME_MACHINE else 1e-3)


@pytest.mark.parametrize("words", frozen.COMMANDS)
def test_exit_codes(words, copies, monkeypatch):
    damaged = copies / "damaged"
    shutil.copytree(copies / "results", damaged)
    (data,) = (damaged / "data").iterdir()
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    places = {name: copies / name for name in ("store", "results", "damaged", "missing", "out")}
    monkeypatch.chdir(copies)
    assert run(*words.format(**places).split()) == frozen.COMMANDS[words]
