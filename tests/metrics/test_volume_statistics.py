"""How the volume varies over the grid: known answers, and members alike."""

import torch

from recombine.metrics import held_out_statistics, log_volume
from recombine.metrics.volume_statistics import FLOOR

HELD_OUT = torch.tensor([False, False, True, True])


def test_the_logarithm_is_floored():
    metric = torch.stack([torch.eye(2), 100 * torch.eye(2), torch.zeros(2, 2), FLOOR / 10 * torch.eye(2)])
    torch.testing.assert_close(log_volume(metric), torch.tensor([0, 2, -8, -8], dtype=torch.float64))


def test_a_region_ten_times_as_large_has_contrast_one():
    statistics = held_out_statistics(torch.tensor([2.0, 2.0, 3.0, 3.0]), HELD_OUT)
    assert {name: value.item() for name, value in statistics.items()} == {
        "spread_held": 0.0,
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
    assert together["contrast"].tolist() == [2.0, 0.0]
