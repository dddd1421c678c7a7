"""Datasets come back from a file as xarray's own, slower reader gives them."""

import io

import numpy as np
import pytest
import xarray

from recombine.netcdf import decoded, encoded
from tests.golden import RESULTS

SOME = ("encodings", "threshold")
STORED = [
    path.stem if path.stem in SOME else pytest.param(path.stem, marks=pytest.mark.slow)
    for path in sorted((RESULTS / "data").glob("*.nc"))
]


def assert_same(found, expected):
    xarray.testing.assert_identical(found, expected)
    assert list(found.data_vars) == list(expected.data_vars)
    assert found.sizes == expected.sizes
    for name in expected.variables:
        assert found[name].dtype == expected[name].dtype, name
    assert {name: type(value) for name, value in found.attrs.items()} == {
        name: type(value) for name, value in expected.attrs.items()
    }


@pytest.mark.parametrize("study", STORED)
def test_stored_results(study):
    content = (RESULTS / "data" / f"{study}.nc").read_bytes()
    assert_same(decoded(content), xarray.load_dataset(io.BytesIO(content), engine="h5netcdf"))


ODD = {
    "nothing": xarray.Dataset(),
    "a dimension without values": xarray.Dataset({"a": (("x", "x2"), np.eye(3))}),
    "same length": xarray.Dataset({"a": (("x", "y"), np.eye(2))}, {"x": [1, 2], "y": ["one", "three"]}),
    "a number": xarray.Dataset({"a": 1.5, "b": "text", "c": True, "d": np.int32(3)}),
    "other coordinates": xarray.Dataset({"a": ("x", [1.0, np.nan])}, {"x": [0, 1], "of_x": ("x", ["a", ""]), "k": 3}),
    "no seeds": xarray.Dataset({"a": (("x", "y"), np.zeros((0, 2)))}, {"y": [1.0, 2.0]}),
    "kinds": xarray.Dataset({k: ("x", np.arange(3).astype(k)) for k in ("f4", "f8", "i1", "i8", "u1", "?")}),
    "units": xarray.Dataset({"a": ("x", [1.0], {"units": "px", "valid": [0, 1]})}),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_what_else_is_written(name):
    content = encoded(ODD[name])
    assert_same(decoded(content), xarray.load_dataset(io.BytesIO(content), engine="h5netcdf"))
    assert decoded(content).equals(ODD[name])


def test_attributes():
    written = xarray.Dataset(attrs={"one": 1, "two": [1.5, 2.5], "text": "ü", "lines": "a\nb", "empty": ""})
    content = encoded(written)
    assert_same(decoded(content), xarray.load_dataset(io.BytesIO(content), engine="h5netcdf"))
