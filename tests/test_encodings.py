"""Known answers; the contracts hold the rest."""

import math

import torch

from recombine.encodings import Bump, OneHot, Positional, Ramp, Rate
from recombine.factors import Factor

X = Factor("x", 0, 4, 5)
AT = torch.tensor([0.0, 2.0, 4.0], dtype=torch.float64)


def test_bump_is_a_gaussian_over_neurons():
    code = Bump(variance=3.0).code(AT, X)
    assert code[1].tolist() == [math.exp(-((k - 2) ** 2) / 6) for k in range(5)]


def test_onehot():
    assert OneHot().code(AT, X).tolist() == [[1, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 1]]


def test_rate_is_the_value_or_scaled_to_one():
    assert Rate().code(AT, X).tolist() == [[0], [2], [4]]
    assert Rate(scale="unit").code(AT, X).tolist() == [[-1], [0], [1]]


def test_ramp_is_a_thermometer():
    assert Ramp().code(AT, X)[1].tolist() == [1, 1, 0.5, 0, 0]
    assert Ramp().code(torch.tensor(2.25, dtype=torch.float64), X).tolist() == [1, 1, 0.75, 0, 0]


def test_positional_is_sines_then_cosines_of_geometric_frequencies():
    code = Positional(pairs=2, base=100.0).code(torch.tensor(3.0, dtype=torch.float64), X)
    expected = [math.sin(3), math.sin(0.3), math.cos(3), math.cos(0.3)]
    assert torch.allclose(code, torch.tensor(expected, dtype=torch.float64))
