"""Exact where that is true, differences where it is not, and always said."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import recombine
from recombine.encodings import ENCODINGS
from recombine.errors import InvalidValue
from recombine.factors import Factor, FactorGrid
from tests.small import small_spec

diagnose = partial(recombine.diagnose, metrics=["metric", "volume", "factorization", "factorization_mean"])
"""The fewest numbers in which a difference shows."""
GRID = "x=0:5,y=0:5"


class Through(nn.Module):
    """Two linear maps with something between them."""

    def __init__(self, between):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.between = nn.Linear(12, 6), nn.Linear(6, 3), between

    def forward(self, codes):
        return self.second(self.between(self.first(codes)))


class StraightThrough(nn.Module):
    """Rounds, and reports the derivative of the identity."""

    def forward(self, hidden):
        return hidden + ((4 * hidden).round() / 4 - hidden).detach()


LOST = {
    "detach": lambda hidden: hidden.detach(),
    "numpy": lambda hidden: torch.from_numpy(np.tanh(hidden.numpy())),
    "whole numbers": lambda hidden: (8 * hidden).long().float(),
}


@pytest.mark.parametrize("how", LOST)
def test_a_lost_derivative_is_never_a_volume_of_zero(how):
    module = Through(LOST[how])
    result = diagnose(module, GRID, encode="bump")
    assert result.attrs["metric"] == "finite differences"
    assert "lost at output" in result.attrs["metric_reason"]
    by_differences = diagnose(module, GRID, encode="bump", geometry="differences")
    assert np.array_equal(result["metric"], by_differences["metric"])
    assert float(result["volume"].sel(stage="output").mean()) > 1e-6
    with pytest.raises(InvalidValue, match=r"^geometry.*lost at output"):
        diagnose(module, GRID, encode="bump", geometry="exact")


@pytest.mark.parametrize(
    "between",
    [lambda hidden: hidden + 2 * hidden.detach() ** 2, StraightThrough()],
    ids=["a branch", "straight-through"],
)
def test_a_derivative_of_something_else_is_not_called_exact(between):
    result = diagnose(Through(between), GRID, encode="bump")
    assert result.attrs["metric"] == "finite differences"
    assert "is not that of its activations" in result.attrs["metric_reason"]


class PartlyDetached(nn.Module):
    """The identity, which reports a little less."""

    def __init__(self, lost):
        super().__init__()
        self.lost = lost

    def forward(self, values):
        return (1 - self.lost) * values + self.lost * values.detach()


@pytest.mark.parametrize("grid", ["x=0:4,y=0:4", "x=0:1000:9,y=0:1:9"])
def test_a_derivative_that_is_a_little_wrong_is_not_called_exact(grid):
    result = diagnose(PartlyDetached(0.15), grid)
    assert result.attrs["metric"] == "finite differences"
    assert float(result["volume"].sel(stage="output").mean()) == pytest.approx(1.0, rel=1e-3)
    assert diagnose(PartlyDetached(0.0), grid).attrs["metric"] == "exact"


def test_a_derivative_that_is_infinite_is_not_called_exact():
    class Root(nn.Module):
        def forward(self, values):
            return values.sqrt()

    result = diagnose(Root(), GRID)
    assert result.attrs["metric"] == "finite differences"
    assert result.attrs["metric_reason"] == "since the derivative is not finite at output"
    assert bool(np.isfinite(result["metric"]).all())


def test_a_metric_that_no_number_holds_is_refused():
    class Vast(nn.Module):
        def forward(self, values):
            return 1e200 * values.double()

    with pytest.raises(InvalidValue, match=r"^module"):
        diagnose(Vast(), GRID)


def test_a_stage_that_never_varies_keeps_the_others_exact():
    dead = nn.Sequential(nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 3))
    nn.init.constant_(dead[0].bias, -100.0)
    result = diagnose(dead, GRID, encode="bump")
    assert result.attrs["metric"] == "exact"
    assert float(result["volume"].sel(stage="output").max()) == 0.0


@pytest.mark.parametrize(
    ("decoder", "encoding"),
    [
        ("cnn", "bump"),
        ("transformer", "rate"),
        *(("mlp", name) for name, kind in ENCODINGS.items() if kind.differentiable),
    ],
)
def test_what_is_exact_stays_exact(decoder, encoding):
    """Kinks of ramps and rectifiers are no contradiction."""
    spec = small_spec(decoder, task={"encoding": encoding})
    assert diagnose(spec.module(), "x=0:7,y=0:7", encode=encoding).attrs["metric"] == "exact"


def test_periods_shorter_than_the_grid_are_no_contradiction():
    frequencies = 2.0 ** torch.arange(9, dtype=torch.float64) * torch.pi

    def encode(values):
        return torch.sin(values[:, :, None] * frequencies).flatten(1)

    result = diagnose(nn.Linear(18, 3), "x=0:1:5,y=0:1:5", encode=encode)
    assert result.attrs["metric"] == "exact"


def test_how_the_metric_was_computed_is_said_with_what_depends_on_it():
    for module, method in ((Through(nn.Tanh()), "exact"), (Through(LOST["detach"]), "finite differences")):
        result = diagnose(module, GRID, encode="bump")
        assert result.attrs["metric"] == method
        assert f"metric: {method}" in result.summary()
        for name in ("metric", "volume", "factorization", "factorization_mean", "factorization_of_means"):
            assert result[name].attrs["metric"] == method
            assert result[name].attrs["metric_reason"] == result.attrs["metric_reason"]


@pytest.mark.parametrize("points", [None, 24], ids=["whole", "sampled"])
def test_differences_use_the_values_of_unevenly_spaced_factors(points):
    class Square(nn.Module):
        def forward(self, values):
            return values.square()

    grid = FactorGrid((Factor.of("x", [0, 1, 3, 7, 8]), Factor.of("y", [0, 0.5, 2, 5, 9, 11])))
    metric = diagnose(Square(), grid, geometry="differences", points=points)["metric"].sel(stage="output")
    checked = 0
    for name, high in (("x", 8), ("y", 11)):
        inner = metric.sel(factor=name, other_factor=name)
        inner = inner.isel({name: (inner[name] > 0) & (inner[name] < high)})
        expected = np.broadcast_to((4 * inner[name] ** 2).values, inner.transpose(..., name).shape)
        np.testing.assert_allclose(inner.transpose(..., name), expected, rtol=1e-4)
        checked += inner.size
    assert checked


def test_geometry_is_not_reported_where_no_metric_tensor_is_needed():
    result = recombine.diagnose(Through(nn.Tanh()), GRID, encode="bump", geometry="exact", metrics=["effective_rank"])
    assert "metric" not in result.attrs
    assert "metric: " not in result.summary()


def test_a_check_that_cannot_be_made_is_noted():
    def encode(values):
        if not torch.equal(values.detach().round(), values.detach()):
            raise KeyError("integers only")
        return values

    result = diagnose(nn.Linear(2, 2), GRID, encode=encode)
    assert result.attrs["metric"] == "exact"
    assert any(note.startswith("derivatives were not checked") for note in result.notes)


def test_running_out_of_memory_is_not_hidden():
    class Greedy(nn.Module):
        def forward(self, values):
            if len(values) == 1:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return values

    with pytest.raises(torch.OutOfMemoryError):
        diagnose(Greedy(), GRID)
