"""How the volume varies over the grid: known answers, and members alike."""

import numpy as np
import pytest
import torch

from recombine.factors import Factor, FactorGrid
from recombine.metrics import log_volume
from recombine.metrics.profile import stage_profile
from recombine.metrics.registry import Stage
from recombine.metrics.volumes import FLOOR


def statistics(volume, held_out):
    """Of a stage whose log10 volume is given, at points on a line."""
    grid = FactorGrid((Factor("x", 0, 1, volume.shape[-1]),))
    metric = (10 ** (2 * volume.double()))[..., None, None]
    stage = Stage("output", torch.rand(*volume.shape, 2), grid.points, grid, held_out, metric)
    columns = stage_profile([stage], ["volume_held_out"]).columns
    return {name.removeprefix("log_volume_"): values[0] for name, values in columns.items()}


def test_the_logarithm_is_floored():
    metric = torch.stack([torch.eye(2), 100 * torch.eye(2), torch.zeros(2, 2), FLOOR / 10 * torch.eye(2)])
    torch.testing.assert_close(log_volume(metric), torch.tensor([0, 2, -8, -8], dtype=torch.float64))


def test_a_region_ten_times_as_large_has_contrast_one():
    found = statistics(torch.tensor([2.0, 2.0, 3.0, 3.0]), torch.tensor([False, False, True, True]))
    expected = {"spread_held": 0.0, "spread_excess": 0.0, "contrast": 1.0, "deviation_held": 1.0}
    assert {name: value.item() for name, value in found.items()} == pytest.approx(expected)


def test_spreads_are_about_a_regions_own_mean():
    volume = torch.randn(3, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    held_out = torch.arange(40) % 4 == 0
    found, rows = statistics(volume, held_out), volume.numpy()
    held, kept = rows[:, held_out.numpy()], rows[:, ~held_out.numpy()]
    np.testing.assert_allclose(found["spread_held"], held.std(axis=1))
    np.testing.assert_allclose(found["spread_excess"], held.std(axis=1) - kept.std(axis=1))
    lifted = statistics(volume + 7 * held_out, held_out)  # another level is no spread
    for name in ("spread_held", "spread_excess"):
        torch.testing.assert_close(lifted[name], found[name])


def test_stages_have_the_excess_and_what_it_is_of():
    grid = FactorGrid((Factor("x", 0, 4, 5), Factor("y", 0, 5, 6)))
    tangents = torch.randn(30, 4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    stage = Stage("output", torch.rand(30, 2), grid.points, grid, torch.arange(30) % 3 == 0, tangents.mT @ tangents)
    columns = stage_profile([stage], ["volume_kept", "volume_held_out"]).columns
    held, kept, excess = (columns[f"log_volume_spread_{name}"][0].item() for name in ("held", "kept", "excess"))
    assert excess == pytest.approx(held - kept)
    assert excess != 0
