"""Projections: those of scikit-learn, of few and of many features, and what they leave out."""

import pytest
import torch
from sklearn.decomposition import PCA

from recombine.errors import InvalidValue
from recombine.theory.projections import BLOCK, projection


def spread(points, features, rank, seed=0):
    """Points with variances 1, 1/4, 1/9 … along random directions, off the origin."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(points, rank, generator=generator, dtype=torch.float64) / torch.arange(1, rank + 1)
    return 3 + values @ torch.linalg.qr(torch.randn(features, rank, generator=generator, dtype=torch.float64))[0].mT


@pytest.mark.parametrize("features", [12, 500], ids=["fewer features than points", "more"])
def test_coordinates_are_those_of_scikit_learn(features):
    values, kept = spread(60, features, 8), torch.arange(60) % 4 != 0
    ours = projection(values, kept, share=0.9)
    coordinates = ours(values)
    theirs = PCA(coordinates.shape[1], whiten=True).fit(values[kept].numpy())
    expected = torch.from_numpy(theirs.transform(values.numpy())) * (45 / 44) ** 0.5  # they divide by n − 1
    assert torch.allclose(coordinates.abs(), expected.abs(), atol=1e-8)
    assert ours.share == pytest.approx(theirs.explained_variance_ratio_.sum())
    assert 0.9 <= ours.share < 0.995
    assert torch.allclose(coordinates[kept].mT @ coordinates[kept] / 45, torch.eye(coordinates.shape[1]).double())


def test_many_blocks_of_features_are_one():
    values = spread(40, BLOCK + 100, 5)
    project = projection(values, share=1.0)
    assert project.scale.shape == (5,)
    assert torch.allclose(project.inverse(project(values)), values)


def test_rounding_errors_are_no_directions():
    values = spread(50, 30, 3).float()
    assert projection(values, share=1.0).scale.shape == (3,)


def test_the_cut_is_at_a_gap():
    generator = torch.Generator().manual_seed(0)
    exact = torch.linalg.qr(torch.randn(100, 6, generator=generator, dtype=torch.float64) - 0.0)[0]
    exact = torch.linalg.qr(exact - exact.mean(dim=0))[0] * torch.tensor([1, 1, 0.09, 0.08, 0.001, 0.001])
    assert projection(exact, share=0.995).scale.shape == (4,), "three directions hold it, the fourth is like the third"
    assert projection(exact, share=0.9).scale.shape == (2,)
    assert projection(exact, share=0.995, largest=1).scale.shape == (1,)


@pytest.mark.slow
def test_a_layer_of_fifty_thousand_units():
    values = spread(784, 50176, 6).float()
    project = projection(values, share=0.999)
    assert torch.allclose(project.inverse(project(values)).float(), values, atol=0.3)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: projection(torch.full((9, 3), 0.1)), "features"),
        (lambda: projection(torch.full((9, 3), torch.nan)), "features"),
        (lambda: projection(spread(9, 3, 2), largest=9), "largest"),
        (lambda: projection(spread(9, 3, 2), share=1.1), "share"),
        (lambda: projection(spread(9, 3, 2), torch.zeros(9, dtype=torch.bool)), "held_out"),
        (lambda: projection(spread(9, 3, 2), torch.ones(8, dtype=torch.bool)), "kept"),
    ],
    ids=["constant", "NaN", "more directions than data", "share", "everything held out", "another number of points"],
)
def test_mistakes_are_one_line(call, field):
    with pytest.raises(InvalidValue, match=field) as raised:
        call()
    assert "\n" not in str(raised.value)
