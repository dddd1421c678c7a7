"""Values that outputs show, against a slow search of all images on a line."""

import pytest
import torch

from recombine.metrics import nearest_values
from recombine.tasks import BumpsTask


def searched(outputs, targets, shape):
    """Point by point, factor by factor, value by value."""
    indices = torch.cartesian_prod(*(torch.arange(count) for count in shape)).reshape(-1, len(shape))
    flat = {tuple(row.tolist()): number for number, row in enumerate(indices)}
    rows = []
    for output, index in zip(outputs, indices.tolist(), strict=True):
        found = []
        for factor, count in enumerate(shape):
            line = [targets[flat[(*index[:factor], value, *index[factor + 1 :])]] for value in range(count)]
            found.append(min(range(count), key=lambda value: (output - line[value]).square().sum().item()))
        rows.append(found)
    return torch.tensor(rows)


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 4), (2, 2, 3, 2)], ids=str)
def test_it_is_what_a_search_finds(shape):
    generator = torch.Generator().manual_seed(0)
    points = torch.Size(shape).numel()
    targets = torch.randn(points, 7, generator=generator)
    outputs = torch.randn(2, points, 7, generator=generator)
    found = nearest_values(outputs, targets, shape)
    assert torch.equal(found, torch.stack([searched(own, targets, shape) for own in outputs]))


def test_right_images_show_their_values():
    task = BumpsTask(size=8, factors="x=8,y=8,size=0.8..1.6..3,intensity=3", holdout="none")
    images = task.render(task.grid.points).flatten(1)
    assert torch.equal(nearest_values(images, images, task.grid.shape), task.grid.indices)
    assert not nearest_values(images * 0.01, images, task.grid.shape)[:, 3].any()
