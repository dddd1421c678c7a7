"""Equations outside Appendix A that no other test writes out: activation matrix, Jacobian, spectrum, total loss."""

import pytest
import torch

from recombine.decoders import LowRankEmbedding
from recombine.factors import Factor, FactorGrid
from recombine.metrics.stages import features, metric_tensor, stage_jacobians
from recombine.training import Ensemble
from tests.small import small_spec

GRID = FactorGrid((Factor("x", 0, 2, 3), Factor("y", 0, 3, 4)))
MAP = torch.tensor([[1.0, 2.0], [0.0, 3.0], [-1.0, 0.5]], dtype=torch.float64)


def reader(values, tap):
    tap("linear", values @ MAP.to(values.dtype).T)
    tap("product", values[:, :1] * values[:, 1:])


def test_a_row_of_the_activation_matrix_is_a_points_activation():
    points = GRID.points.double()
    stages = dict(features(reader, points))
    assert stages["linear"].shape == (12, 3)
    for row, (x, y) in zip(stages["product"], points.tolist(), strict=True):
        assert row.tolist() == [x * y]


def test_jacobians_and_the_two_by_two_metric_are_the_derivatives():
    points = GRID.points.double()
    jacobians = stage_jacobians(reader, points)
    assert torch.allclose(jacobians["linear"], MAP.expand(12, 3, 2))
    assert torch.allclose(jacobians["product"][:, 0], points.flip(-1))
    metric = metric_tensor(reader, points)["product"]
    for own, (x, y) in zip(metric, points.tolist(), strict=True):
        assert torch.allclose(own, torch.tensor([[y * y, x * y], [x * y, x * x]], dtype=own.dtype))


def test_a_spectrum_is_the_squared_strengths_over_their_sum():
    module = LowRankEmbedding((2, 3), (4, 4), 3, "unit")
    for strength, spectrum in zip(module.strengths, module.spectra(), strict=True):
        for own, share in zip(strength.detach(), spectrum.detach(), strict=True):
            squares = [value**2 for value in own.tolist()]
            assert share.tolist() == pytest.approx([square / sum(squares) for square in squares], rel=1e-5)


def test_the_total_loss_is_the_squared_error_and_both_penalties():
    spec = small_spec("low_rank", penalties=("entropy:0.3", "variance:0.02"))
    ensemble = Ensemble([spec], torch.device("cpu"))
    state, rows = ensemble.initial(), torch.arange(5)[None]
    loss, _ = ensemble.gradients(state, rows, torch.full((1, 5), 0.2), torch.tensor([True]))
    module = spec.module()
    squared = (module(ensemble.examples.inputs[:5]) - ensemble.examples.targets[:5]).square().mean().item()
    assert loss.error.item() == pytest.approx(squared, rel=1e-4)
    expected = squared + 0.3 * module.entropy().item() + 0.02 * module.variance().item()
    assert loss.total.item() == pytest.approx(expected, rel=1e-4)
