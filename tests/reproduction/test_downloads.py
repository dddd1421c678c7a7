"""Data behind figures in a page: exact, rounded, or a link."""

import base64
import zlib

import numpy as np
import pytest
import xarray

from recombine.reproduction.netcdf import decoded, encoded
from recombine.reproduction.report.downloads import downloads, rounded

GENERATOR = np.random.default_rng(0)
NUMBERS = xarray.Dataset({
    "a": ("n", np.array([1 / 3, -1e-30, 0.0, np.nan, np.inf, 123456.789])),
    "b": ("n", np.arange(6)), "c": ((), 0.1),
})  # fmt: skip


def test_rounded_numbers_keep_three_digits():
    short = rounded(NUMBERS)
    assert short["a"].dtype == np.float32
    assert np.allclose(short["a"], NUMBERS["a"], rtol=1 / 4096, atol=0, equal_nan=True)
    assert not np.array_equal(short["a"], NUMBERS["a"].astype(np.float32), equal_nan=True)
    assert short["b"].identical(NUMBERS["b"])
    assert float(short["c"]) == 0.1


@pytest.mark.parametrize(("space", "kinds"), [
    (10**6, ["exact", "exact"]), (30_000, ["link", "rounded"]), (10, ["link", "link"]),
])  # fmt: skip
def test_data_as_space_allows(space, kinds):
    large = xarray.Dataset({"values": ("n", GENERATOR.random(30_000))})
    datasets = {"large": large, "small": NUMBERS}
    contents = {name: encoded(own) for name, own in datasets.items()}
    made = downloads({name: f"data/{name}.nc" for name in datasets}, contents, datasets, space)
    assert [own.study for own in made] == ["large", "small"]
    assert ["link" if own.content is None else "rounded" if own.rounded else "exact" for own in made] == kinds
    for own in made:
        if own.content is not None:
            content = zlib.decompress(base64.b64decode(own.content))
            assert (content == contents[own.study]) is (not own.rounded)
            assert decoded(content)["b" if own.study == "small" else "values"].size in (6, 30_000)
        assert bool(own.note) is (own.content is None or own.rounded)
