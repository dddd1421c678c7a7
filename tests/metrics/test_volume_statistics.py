"""How the volume varies over the grid: known answers, and members alike."""

import numpy as np
import pytest
import torch

from recombine.factors import Factor, FactorGrid
from recombine.metrics import held_out_statistics, log_volume
from recombine.metrics.profile import stage_profile
from recombine.metrics.registry import Stage
from recombine.metrics.volumes import FLOOR

HELD_OUT = torch.tensor([False, False, True, True])


def test_the_logarithm_is_floored():
    metric = torch.stack([torch.eye(2), 100 * torch.eye(2), torch.zeros(2, 2), FLOOR / 10 * torch.eye(2)])
    torch.testing.assert_close(log_volume(metric), torch.tensor([0, 2, -8, -8], dtype=torch.float64))


def test_a_region_ten_times_as_large_has_contrast_one():
    statistics = held_out_statistics(torch.tensor([2.0, 2.0, 3.0, 3.0]), HELD_OUT)
    assert {name: value.item() for name, value in statistics.items()} == {
        "spread_held": 0.0,
        "spread_excess": 0.0,
        "contrast": 1.0,
        "deviation_held": 1.0,
    }


def test_members_are_measured_apart():
    volume = torch.tensor([[0.0, 2.0, 1.0, 5.0], [1.0, 1.0, 1.0, 1.0]])
    together = held_out_statistics(volume, HELD_OUT)
    for k, row in enumerate(volume):
        for name, value in held_out_statistics(row, HELD_OUT).items():
            assert together[name][k] == value
    assert together["spread_held"].tolist() == [2.0, 0.0]
    assert together["spread_excess"].tolist() == [1.0, 0.0]
    assert together["contrast"].tolist() == [2.0, 0.0]


def test_spreads_are_about_a_regions_own_mean():
    volume = torch.randn(3, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    held_out = torch.arange(40) % 4 == 0
    statistics, rows = held_out_statistics(volume, held_out), volume.numpy()
    held, kept = rows[:, held_out.numpy()], rows[:, ~held_out.numpy()]
    np.testing.assert_allclose(statistics["spread_held"], held.std(axis=1))
    np.testing.assert_allclose(statistics["spread_excess"], held.std(axis=1) - kept.std(axis=1))
    lifted = held_out_statistics(volume + 7 * held_out, held_out)  # another level is no spread
    for name in ("spread_held", "spread_excess"):
        torch.testing.assert_close(lifted[name], statistics[name])


def test_stages_have_the_excess_and_what_it_is_of():
    grid = FactorGrid((Factor("x", 0, 4, 5), Factor("y", 0, 5, 6)))
    tangents = torch.randn(30, 4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    stage = Stage("output", torch.rand(30, 2), grid.points, grid, torch.arange(30) % 3 == 0, tangents.mT @ tangents)
    columns = stage_profile([stage], ["volume_kept", "volume_held_out"]).columns
    held, kept, excess = (columns[f"log_volume_spread_{name}"][0].item() for name in ("held", "kept", "excess"))
    assert excess == pytest.approx(held - kept)
    assert excess != 0
