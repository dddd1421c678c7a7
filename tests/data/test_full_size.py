"""The script that makes files in the published layouts, on a twentieth of their size."""

import itertools

import numpy as np
import pytest
import torch
from benchmarks.data_files import SHAPES, SPRITES, make, shapes, sprites

from recombine import ArrayTask, diagnose


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "counts", "drawn"),
    [("a.npz", SPRITES | {"orientation": 2}, sprites), ("a.h5", SHAPES | {"floor_hue": 2}, shapes)],
    ids=["dSprites", "3D Shapes"],
)
def test_files_of_the_scripts(name, counts, drawn, tmp_path, cache_folder, monkeypatch):
    make(tmp_path / name, share=0.05)
    task = ArrayTask(data=tmp_path / name)
    assert dict(zip(task.grid.names, task.grid.shape, strict=True)) == {n: c for n, c in counts.items() if c > 1}
    assert task.source.pixels.in_file
    assert task.source.path == tmp_path / name
    first = next(itertools.islice(drawn(counts), 3, None))
    rows = 3 * len(first) + np.arange(5)
    assert np.array_equal(task.source.pixels.take(rows), first[:5])
    read, take = [], task.source.pixels.take
    monkeypatch.setattr(task.source.pixels, "take", lambda rows: read.append(len(rows)) or take(rows))
    module = torch.nn.Linear(len(task.grid.names), np.prod(task.image_shape))
    result = diagnose(module, data=task, encode="rate", points=320, geometry="differences")
    assert result.attrs["points"] == 320
    assert float(result["ood_error_se"]) > 0
    assert max(read) <= 2048, "a few at a time, of tens of thousands"
    assert len(list(cache_folder.glob("*.pixels"))) == 1
