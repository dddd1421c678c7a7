"""Projections: those of scikit-learn, of few and of many features, and what they leave out."""

import pytest
import torch
from sklearn.decomposition import PCA

from recombine.errors import InvalidValue
from recombine.theory.projections import projection


def spread(points, features, rank, seed=0):
    """Points with variances 1, 1/4, 1/9 … along random directions, off the origin."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(points, rank, generator=generator, dtype=torch.float64) / torch.arange(1, rank + 1)
    return 3 + values @ torch.linalg.qr(torch.randn(features, rank, generator=generator, dtype=torch.float64))[0].mT


@pytest.mark.parametrize("features", [12, 500], ids=["fewer features than points", "more"])
def test_coordinates_are_those_of_scikit_learn(features):
    values, kept = spread(60, features, 8), torch.arange(60) % 4 != 0
    coordinates = projection(values, kept, share=0.9)
    theirs = PCA(coordinates.shape[1], whiten=True).fit(values[kept].numpy())
    expected = torch.from_numpy(theirs.transform(values.numpy())) * (45 / 44) ** 0.5  # they divide by n − 1
    assert torch.allclose(coordinates.abs(), expected.abs(), atol=1e-8)
    assert 0.9 <= theirs.explained_variance_ratio_.sum() < 0.995
    assert torch.allclose(coordinates[kept].mT @ coordinates[kept] / 45, torch.eye(coordinates.shape[1]).double())


def test_coordinates_span_what_many_features_do():
    values = spread(40, 5000, 5)
    coordinates, centred = projection(values, share=1.0), values - values.mean(dim=0)
    assert coordinates.shape[1] == 5
    assert torch.allclose(coordinates @ torch.linalg.lstsq(coordinates, centred).solution, centred)


def test_rounding_errors_are_no_directions():
    values = spread(50, 30, 3).float()
    assert projection(values, share=1.0).shape[1] == 3


def test_the_cut_is_at_a_gap():
    generator = torch.Generator().manual_seed(0)
    exact = torch.linalg.qr(torch.randn(100, 6, generator=generator, dtype=torch.float64) - 0.0)[0]
    exact = torch.linalg.qr(exact - exact.mean(dim=0))[0] * torch.tensor([1, 1, 0.09, 0.08, 0.001, 0.001])
    assert projection(exact, share=0.995).shape[1] == 4, "the fourth is like the third"
    assert projection(exact, share=0.9).shape[1] == 2


def test_what_does_not_vary_and_nan_are_refused():
    for value in (0.1, torch.nan):
        with pytest.raises(InvalidValue, match="features"):
            projection(torch.full((9, 3), value))
