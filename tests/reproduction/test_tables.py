"""Numbers along stages: known answers, networks of different depth, and a slow oracle."""

import math
from itertools import pairwise

import numpy as np
import pytest
import xarray

from recombine.reproduction.tables import (
    fall,
    first_hidden,
    largest_drop,
    last_hidden,
    last_two_less_others,
    mean_after_input,
    mean_log_after_input,
    middle_hidden,
    output,
    total_variation,
    unevenness,
)

NAN = math.nan
INPUT = 99.0
"""Given by construction; nothing may depend on it."""
FINE = 420
"""Places in a quarter of the depth at which a loop looks; stages of all networks here lie at some of them."""
FUNCTIONS = (
    fall, first_hidden, largest_drop, last_hidden, last_two_less_others, mean_after_input, middle_hidden, output,
    total_variation, unevenness,
)  # fmt: skip


def networks(*rows):
    """A table of networks, with trailing NaN where they have fewer stages than the deepest."""
    most = max(map(len, rows)) + 1
    table = [[INPUT, *row, *[NAN] * (most - 1 - len(row))] for row in rows]
    stages = ["input", *(f"layer{k}" for k in range(most - 1))]
    return xarray.DataArray(table, dims=("seed", "stage"), coords={"stage": stages, "seed": range(len(rows))})


def test_unevenness_is_the_largest_share_of_the_variation_within_a_quarter():
    values = networks(
        [1.0, 0.9, 0.8, 0.7, 0.6],
        [1.0, 1.0, 1.0, 1.0, 0.6],
        [1.0, 1.0, 1.0, 0.6, 0.6, 0.6],  # within a fifth of the depth, wherever that lies
        [1.0, 0.7],  # one step is a straight line
        [1.0, 1.0, 0.6],  # the second half, so half in a quarter
        [1.0, 0.8, 1.0, 1.0, 0.9],  # falls by 0.2, rises by as much, falls by 0.1
        [1.0, 0.96, 0.94, 0.92, 0.91, 0.8, 0.7, 0.68, 0.6],  # two steps in a quarter
        [0.6, 0.7, 0.8, 0.9],  # a rise is a change as a fall is
        [0.7, 0.7, 0.7],
    )
    expected = [0.25, 1.0, 1.0, 0.25, 0.5, 0.4, 0.21 / 0.4, 0.25, 0.25]
    assert unevenness(values).values == pytest.approx(expected)
    assert total_variation(values).values == pytest.approx([0.4, 0.4, 0.4, 0.3, 0.4, 0.5, 0.4, 0.3, 0.0])


def slow(row):
    """One network, in lists."""
    own = [value for value in row[1:] if not math.isnan(value)]
    others = own[:-2]
    whole = own[0] - own[-1]
    changes = [abs(a - b) for a, b in pairwise(own)]
    fine = np.interp(np.arange(4 * FINE + 1) / (4 * FINE), np.linspace(0, 1, len(own)), np.cumsum([0, *changes]))
    return {
        fall: whole,
        first_hidden: own[0],
        largest_drop: max(a - b for a, b in pairwise(own)),
        last_hidden: own[-2],
        last_two_less_others: sum(own[-2:]) / 2 - sum(others) / len(others) if others else NAN,
        mean_after_input: sum(own) / len(own),
        middle_hidden: own[:-1][(len(own) - 2) // 2],
        output: own[-1],
        total_variation: sum(changes),
        unevenness: (fine[FINE:] - fine[:-FINE]).max() / sum(changes),
    }


def test_they_are_what_a_loop_finds_over_any_other_dimensions():
    generator = np.random.default_rng(0)
    table = generator.random((4, 3, 8))
    for depth, stages in enumerate((3, 4, 6, 8)):
        table[depth, :, stages:] = NAN
    values = xarray.DataArray(table, dims=("depth", "seed", "stage"), coords={"depth": [1, 2, 4, 6]})
    for function in FUNCTIONS:
        found = function(values)
        assert found.dims == ("depth", "seed")
        assert found["depth"].values.tolist() == [1, 2, 4, 6]
        for place in np.ndindex(4, 3):
            assert found.values[place] == pytest.approx(slow(table[place])[function], nan_ok=True), function.__name__
        swapped = function(values.transpose("stage", "seed", "depth"))
        np.testing.assert_allclose(swapped.transpose(*found.dims), found)


def test_a_drop_from_the_input_counts_on_request():
    values = networks([1.0, 0.9, 0.6], [0.9, 0.5]).copy()
    values[:, 0] = [1.2, 1.9]
    assert largest_drop(values).values == pytest.approx([0.3, 0.4])
    assert largest_drop(values, from_input=True).values == pytest.approx([0.3, 1.0])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_input_is_left_out(function):
    values = networks([1.0, 0.9, 0.8, 0.6], [0.9, 0.5, 0.4])
    other = values.copy()
    other[:, 0] = NAN
    xarray.testing.assert_allclose(function(other), function(values))
    assert function(values).notnull().all()
    assert "stage" not in function(values).coords


@pytest.mark.parametrize("function", [function for function in FUNCTIONS if function is not output])
def test_networks_without_hidden_stages_or_values_have_no_number(function):
    values = networks([1.0, 0.9, 0.8], [0.7], [])
    assert function(values).isnull().values.tolist() == [False, True, True]


def test_no_stage_dominates_a_mean_of_logarithms():
    found = mean_log_after_input(networks([1000.0, 0.1, 0.1], [10.0, 0.0, 1.0]))
    assert found.values.tolist() == [pytest.approx(1 / 3), -math.inf]
