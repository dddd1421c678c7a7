"""What a stage loses of the factors: nothing in reversible layers, what was planted in others; decoders written out."""

import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.neighbors import KNeighborsRegressor

from recombine.errors import InvalidValue
from recombine.theory.projections import both_grams
from recombine.theory.reversibility import (
    NEIGHBOURS,
    RIDGES,
    WIDTHS,
    factor_recovery,
    jacobian_rank,
    local_loss,
    recovery,
)
from tests.theory.chains import GRID, merged, pooled, saturated, stages

REVERSIBLE = ("blocks", "rotated", "coupled")


@pytest.mark.parametrize("lossy", [pooled, saturated, merged], ids=lambda layer: layer.__name__)
def test_reversible_layers_lose_nothing_and_planted_losses_are_seen(lossy):
    features, metrics = stages(lossy)
    recovery = {name: factor_recovery(own, GRID).tolist() for name, own in features.items()}
    loss = {name: local_loss(own).tolist() for name, own in metrics.items()}
    rank = {name: jacobian_rank(own).double().mean().item() for name, own in metrics.items()}
    for name in REVERSIBLE:
        assert recovery[name] == pytest.approx(recovery["blocks"], abs=0.02), name
        assert min(recovery[name]) > 0.98, name
        assert loss[name] == [0, 0], name
        assert rank[name] == 2, name
    expected = {
        "pooled": ([1, 0], 0.02, [0, 1], 1),
        "saturated": ([1, 7 / 8], 0.04, [0, 1 / 2], 3 / 2),
        "merged": ([1 / 2, 1 / 2], 0.1, [1, 1], 1),
    }
    recovered, tolerance, lost, directions = expected[lossy.__name__]
    assert recovery["lossy"] == pytest.approx(recovered, abs=tolerance)
    assert loss["lossy"] == pytest.approx(lost)
    assert rank["lossy"] == pytest.approx(directions)


@pytest.mark.parametrize("features", [3, 2000])
def test_noise_has_no_factors(features):
    generator = torch.Generator().manual_seed(features)
    noise = torch.randn(20, len(GRID), features, generator=generator)
    recovery = factor_recovery(noise, GRID)
    assert recovery.shape == (20, 2)
    assert -0.1 < recovery.mean().item() < 0.01, "choosing the best decoder must not make anything of it"
    assert recovery.max().item() < 0.15


def explicit_errors(features, values, folds):
    """Every decoder fitted on every fold: ridge with an intercept from its normal equations, and scikit-learn."""
    gram = features @ features.T
    squared = np.square(features[:, None] - features[None]).sum(-1)
    median = np.median(squared[np.triu_indices(len(squared), 1)])
    kernels = [gram] + [rbf_kernel(features, gamma=1 / (2 * width**2 * median)) for width in WIDTHS]
    decoders = []
    for kernel in kernels:
        varying = np.trace(kernel) / len(kernel) - kernel.mean()
        for ridge in RIDGES:

            def predict(fitted, out, kernel=kernel, damping=ridge * varying):
                size = len(fitted)
                system = np.ones((size + 1, size + 1))
                system[:size, :size] = kernel[np.ix_(fitted, fitted)] + damping * np.eye(size)
                system[size, size] = 0
                solved = np.linalg.solve(system, np.vstack([values[fitted], np.zeros((1, values.shape[1]))]))
                return kernel[np.ix_(out, fitted)] @ solved[:size] + solved[size]

            decoders.append(predict)
    for count in NEIGHBOURS:

        def nearest(fitted, out, count=count):
            return KNeighborsRegressor(count).fit(features[fitted], values[fitted]).predict(features[out])

        decoders.append(nearest)
    everything = np.arange(len(values))
    return np.array([
        [np.square(predict(np.setdiff1d(everything, out), out) - values[out]).sum(0) for out in folds]
        for predict in decoders
    ])  # fmt: skip


def test_all_folds_at_once_are_each_fold_fitted_by_itself():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(31, 6, generator=generator).double()
    features -= features.mean(dim=0)
    features /= features.square().sum(dim=1).mean().sqrt()
    values = torch.randn(31, 2, generator=generator).double()
    found = recovery(features @ features.T, values, folds=4)
    explicit = explicit_errors(features.numpy(), values.numpy(), [fold.numpy() for fold in found.folds])
    sums = torch.stack([found.errors[:, fold].sum(dim=1) for fold in found.folds], dim=1)
    np.testing.assert_allclose(sums.numpy(), explicit, rtol=2e-4)


def test_a_gram_matrix_says_it_all_and_goes_in_parts(monkeypatch):
    features = torch.randn(2, 20, 333, generator=torch.Generator().manual_seed(0)) + 3
    centred = features.double() - features.double().mean(dim=-2, keepdim=True)
    whole = both_grams(features)[0]
    assert torch.allclose(whole, centred @ centred.mT)
    assert torch.allclose(both_grams(features)[1], features.double() @ features.double().mT)
    monkeypatch.setattr("recombine.theory.projections.PART", 1000)
    assert torch.allclose(both_grams(features)[0], whole)
    assert features.mean() > 2.9, "features are left as they were"


def test_what_is_lost_in_a_region_is_seen_by_scoring_it():
    """Held-out points are all mapped onto one: nothing is lost elsewhere."""
    grid = torch.cartesian_prod(torch.arange(15.0), torch.arange(15.0)).double()
    inside = ((grid > 3) & (grid < 11)).all(dim=1)
    features = torch.where(inside[:, None], torch.tensor([30.0, 30.0], dtype=grid.dtype), grid)
    everywhere = factor_recovery(features, grid)
    assert (factor_recovery(features, grid, scored=~inside) > 0.95).all()
    assert (factor_recovery(features, grid, scored=inside) < 0.2).all()
    assert ((everywhere > 0.5) & (everywhere < 1)).all()
    assert torch.equal(factor_recovery(features, grid, scored=inside | True), everywhere)


def test_stages_and_factors_that_do_not_vary():
    flat = factor_recovery(torch.ones(len(GRID), 3), torch.cat([GRID, torch.ones(len(GRID), 1)], dim=1))
    assert (flat[:2] < 0.01).all()
    assert (flat[:2] > -0.1).all()
    assert flat[2].isnan()


def test_three_factors_of_which_two_move_the_same_way():
    jacobian = torch.tensor([[1.0, 2.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 1.0]]).double()
    metric = (jacobian.T @ jacobian).expand(5, 3, 3)
    assert jacobian_rank(metric).tolist() == [2] * 5
    assert local_loss(metric).tolist() == [1, 1, 0]


def test_scale_does_not_matter_to_ranks_and_losses():
    metric = torch.diag_embed(torch.tensor([[1.0, 1e-4], [1.0, 1e-5], [1.0, 0.0]]).double())
    assert jacobian_rank(metric).tolist() == jacobian_rank(1e-12 * metric).tolist() == [2, 2, 1]
    assert local_loss(metric).tolist() == local_loss(1e9 * metric).tolist() == pytest.approx([0, 1 / 3])
    assert jacobian_rank(torch.zeros(4, 2, 2)).tolist() == [0] * 4
    assert local_loss(torch.zeros(4, 2, 2)).tolist() == [1, 1]
    assert local_loss(torch.ones(4, 1, 1)).tolist() == [0]


def test_nan_is_no_loss_and_folds_need_points():
    with pytest.raises(InvalidValue, match="features"):
        factor_recovery(torch.full((12, 2), torch.nan), torch.rand(12, 2))
    with pytest.raises(InvalidValue, match="folds"):
        factor_recovery(torch.rand(9, 2), torch.rand(9, 2))
    for measure in (jacobian_rank, local_loss):
        with pytest.raises(InvalidValue, match="metric"):
            measure(torch.full((3, 2, 2), torch.nan))
