"""Planes through a grid of several factors, and the figures that show them."""

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.patches import PathPatch

from recombine.diagnosis.drawing import plane_figure, plane_through
from recombine.diagnosis.result import Diagnosis
from recombine.errors import InvalidValue

FACTORS = {"x": np.arange(4.0), "size": np.array([1.0, 2.0, 4.0]), "shape": np.arange(2.0)}


def result(**attrs):
    generator = np.random.default_rng(0)
    held_out = np.zeros((4, 3, 2), dtype=bool)
    held_out[3, 2, 1] = True
    return Diagnosis(
        {
            "volume": (("stage", *FACTORS), 10 ** generator.random((2, 4, 3, 2))),
            "factorization": (("stage", *FACTORS), generator.random((2, 4, 3, 2))),
            "held_out": (tuple(FACTORS), held_out),
        },
        coords={"stage": ["input", "output"], **FACTORS},
        attrs={"metric": "exact", **attrs},
    )


def drawn(figure):
    image = figure.axes[1].get_images()[0].get_array()
    titles = figure._suptitle.get_text()
    pyplot.close(figure)
    return np.asarray(image), titles


def test_the_first_two_factors_and_the_mean_of_the_others():
    data = result()
    figure = data.draw()
    (outline,) = (own for own in figure.axes[0].patches if isinstance(own, PathPatch))
    np.testing.assert_allclose(outline.get_path().get_extents().extents, [2.5, 1.5, 3.5, 2.5])  # any point held out
    image, title = drawn(figure)
    np.testing.assert_allclose(image, np.log10(data["volume"].values[1]).mean(axis=-1).T)
    assert "mean over shape" in title


def test_a_chosen_plane_at_a_value():
    data = result()
    image, title = drawn(data.draw(plane=("shape", "x"), at={"size": 4}))
    np.testing.assert_allclose(image, np.log10(data["volume"].values[1])[:, 2, :])
    assert "size = 4" in title


def test_values_that_are_not_even_are_labelled():
    figure = plane_figure(result(), plane=("x", "size"))
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["1", "2", "4"]
    pyplot.close(figure)


def test_a_sampled_grid_takes_the_nearest_value():
    _, fixed, _ = plane_through(FACTORS, ("x", "shape"), {"size": 3.4}, is_sampled=True)
    assert fixed == {"size": 4.0}


@pytest.mark.parametrize(
    "fields",
    [{"plane": ("x", "y")}, {"plane": ("x", "x")}, {"plane": "x"}, {"at": {"y": 1}}, {"at": {"x": 1}},
     {"at": {"shape": 7}}, {"at": {"shape": float("nan")}}, {"column": "held_out"}],
)  # fmt: skip
def test_refusals(fields):
    with pytest.raises(InvalidValue):
        result().draw(**fields)
