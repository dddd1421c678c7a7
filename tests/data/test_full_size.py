"""The script that makes files in the published layouts, on a twentieth of their size."""

import itertools

import numpy as np
import pytest
import torch
from benchmarks.data_files import SHAPES, SPRITES, make, shapes, sprites

from recombine import ArrayTask
from recombine.diagnosis.data import part_of


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "counts", "drawn"),
    [("a.npz", SPRITES | {"orientation": 2}, sprites), ("a.h5", SHAPES | {"floor_hue": 2}, shapes)],
    ids=["dSprites", "3D Shapes"],
)
def test_files_of_the_scripts(name, counts, drawn, tmp_path, cache_folder):
    make(tmp_path / name, share=0.05)
    task = ArrayTask(data=tmp_path / name)
    assert dict(zip(task.grid.names, task.grid.shape, strict=True)) == {n: c for n, c in counts.items() if c > 1}
    assert task.source.pixels.in_file
    assert task.source.path == tmp_path / name
    first = next(itertools.islice(drawn(counts), 3, None))
    rows = 3 * len(first) + np.arange(5)
    assert np.array_equal(task.source.pixels.take(rows), first[:5])
    part = part_of(task, "rate", None, 256)
    assert part.grid.size <= 256
    assert torch.equal(part.targets[0], task.source.images(np.array([0])).flatten())
    assert len(list(cache_folder.glob("*.pixels"))) == 1
