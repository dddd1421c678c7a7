"""How the volume varies over the grid: known answers, and members alike."""

import numpy as np
import pytest
import torch

from recombine.metrics import log_volume
from recombine.metrics.geometry import FLOOR
from tests.metrics.comparison import columns_of, stage_over


def statistics(volume, held_out):
    """Of a stage whose log10 volume is given, at points on a line."""
    metric = (10 ** (2 * volume.double()))[..., None, None]
    stage = stage_over(torch.rand(*volume.shape, 2), volume.shape[-1:], held_out, metric)
    columns = columns_of(stage, ["volume_held_out"])
    return {name.removeprefix("log_volume_"): value for name, value in columns.items()}


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
