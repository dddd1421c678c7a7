"""Modules that mix the examples of a batch or draw random numbers are measured one example at a time."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import recombine
from recombine.errors import InvalidValue
from recombine.metrics.stages import chunks

diagnose = partial(recombine.diagnose, metrics=["metric", "volume"])
"""The fewest numbers in which a difference shows."""
GRID = "x=0:3,y=0:3"


def layers(between):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 6), between, nn.Linear(6, 3))


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, hidden):
        return self.function(hidden)


class OverTheBatch(nn.Module):
    """Attention that takes the batch for its sequence, a common slip."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2)

    def forward(self, hidden):
        return self.attention(hidden[:, None], hidden[:, None], hidden[:, None], need_weights=False)[0][:, 0]


@pytest.mark.parametrize(
    "between", [Function(lambda hidden: hidden.softmax(dim=0)), OverTheBatch()], ids=["softmax", "attention"]
)
def test_rows_that_meet_are_run_alone(between):
    module = layers(between).eval()
    result = diagnose(module, GRID, encode="bump")
    assert "note: outputs depend on other examples in the batch (from 1" in result.summary()
    grid = recombine.FactorGrid.parse(GRID)
    codes = recombine.encodings.ENCODINGS.parse("bump")
    rows = [torch.cat([codes.code(v[None], f) for v, f in zip(p, grid.factors, strict=True)], 1) for p in grid.points]
    with torch.no_grad():
        alone = torch.cat([module(row.float()) for row in rows]).reshape(4, 4, 3)
    steps = [np.gradient(alone.numpy(), axis=axis) for axis in (0, 1)]
    metric = np.einsum("axyf,bxyf->xyab", steps, steps)
    by_differences = diagnose(module, GRID, encode="bump", geometry="differences")
    assert np.allclose(by_differences["metric"].sel(stage="output"), metric, atol=1e-5)


def test_batch_statistics_that_no_single_row_has():
    normalise = nn.BatchNorm1d(6, track_running_stats=False)
    result = diagnose(layers(normalise), GRID, encode="bump", holdout="center:1:2")
    assert any("the grid was run as one batch" in note for note in result.notes)
    assert result.attrs["metric"] == "finite differences"
    assert "outputs depend on other examples in the batch" in result.attrs["metric_reason"]
    for fields, words in (({"geometry": "exact"}, "^geometry"), ({"memory": 100}, "^memory")):
        with pytest.raises(InvalidValue, match=words):
            diagnose(layers(normalise), GRID, encode="bump", **fields)


def test_random_outputs_are_one_function_under_one_seed():
    noisy = layers(Function(lambda hidden: hidden + 0.3 * torch.randn_like(hidden)))
    plain = layers(nn.Identity())
    result = diagnose(noisy, GRID, encode="bump", holdout="center:1:2")
    assert any("random in evaluation mode (from 1" in note for note in result.notes)
    assert result.attrs["metric"] == "exact"
    expected = diagnose(plain, GRID, encode="bump", holdout="center:1:2")
    assert np.allclose(result["metric"], expected["metric"], atol=1e-5)
    assert not expected.notes
    dropping = diagnose(layers(Function(nn.functional.dropout)), GRID, encode="bump")
    assert dropping.notes
    again = diagnose(layers(Function(nn.functional.dropout)), GRID, encode="bump")
    assert np.array_equal(dropping["metric"], again["metric"])


class Remembers(nn.Module):
    def forward(self, hidden):
        self.count = getattr(self, "count", 0) + 1
        return hidden * self.count


def test_a_module_that_never_repeats_itself_is_refused():
    generator = np.random.default_rng(0)
    for between in (Remembers(), Function(lambda hidden: hidden * generator.normal())):
        with pytest.raises(InvalidValue, match=r"^module.*reproduced by seeding") as caught:
            diagnose(layers(between), GRID, encode="bump")
        assert "\n" not in str(caught.value)
        assert not hasattr(between, "count")


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64])
def test_chunks_never_hold_a_single_row(count):
    points = torch.arange(count)
    for size in (0, 1, 2, 3, 5, 1000):
        parts = chunks(points, size)
        assert torch.equal(torch.cat(parts), points)
        assert min(map(len, parts)) >= min(2, count)
        assert max(map(len, parts)) <= max(3, size)


class Squeezes(nn.Module):
    """Drops every dimension of one, and with it a batch of one."""

    def forward(self, hidden):
        return (hidden[:, None] ** 2).squeeze()


def test_a_module_that_takes_no_single_row_but_keeps_rows_apart():
    result = diagnose(layers(Squeezes()), GRID, encode="bump", memory=1500)
    assert result.attrs["metric"] == "exact"
    assert not result.notes
    whole = diagnose(layers(Squeezes()), GRID, encode="bump")
    assert np.allclose(result["metric"], whole["metric"], atol=1e-5)
