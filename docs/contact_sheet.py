"""Draw docs/images/tasks.png: a row of images for every task, pixel by pixel.

python docs/contact_sheet.py
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib import pyplot
from matplotlib.figure import Figure

from recombine.panels import styled
from recombine.tasks import BallsTask, BumpsTask, BumpTask, RotationTask, SpriteTask, Task

COLUMNS = 14
TILE, GAP, MARGIN, DPI = 64, 4, 108, 100
"""Pixels of an image, between two images and in the left margin, and pixels per inch."""
SHOWN = Path(__file__).parent / "images" / "tasks.png"


@dataclass(frozen=True)
class Row:
    """Images of one task: at given values, or at random grid points."""

    title: str
    task: Task
    values: torch.Tensor | None = None

    def tiles(self) -> np.ndarray:
        """Return the images side by side, enlarged by an integer factor, with colour as the last axis."""
        points, generator = self.task.grid.points, torch.Generator().manual_seed(1)
        drawn = torch.randint(len(points), (COLUMNS,), generator=generator)
        images = self.task.render(points[drawn] if self.values is None else self.values).numpy()
        images = images.transpose(0, 2, 3, 1) if images.ndim == 4 else np.stack([images] * 3, axis=-1)
        times = TILE // images.shape[1]
        enlarged = images.repeat(times, axis=1).repeat(times, axis=2)
        strip = np.ones((TILE, COLUMNS * (TILE + GAP), 3))
        rest = (TILE - enlarged.shape[1]) // 2
        for column, image in enumerate(enlarged):
            left = column * (TILE + GAP) + rest
            strip[rest : rest + len(image), left : left + len(image)] = image
        return strip


def swept(task: Task) -> torch.Tensor:
    """Return values of the only factor, one per image, from lowest to highest."""
    (factor,) = task.grid.factors
    return torch.linspace(factor.low, factor.high, COLUMNS, dtype=torch.float64)[:, None]


def sweep(name: str, factor: str, **fields: object) -> Row:
    """Return a row of sprites in which one quantity varies."""
    task = SpriteTask(size=TILE, factors=factor, holdout="none", **fields)
    return Row(f"sprites\n{name}", task, swept(task))


def rows() -> list[Row]:
    """Return the rows of the sheet, the paper's task first."""
    paper, turned = BumpTask(sigma=1.5), RotationTask(angles=COLUMNS, holdout="none")
    alone = torch.cat([paper.grid.points[::59], paper.isolated_values()[3::8]])[-COLUMNS:]
    five = BumpsTask(sigma=2.0, factors="x=5..22..8,y=5..22..8,size=1..2..4,intensity=4,orientation=6", holdout="none")
    oriented = BumpsTask(factors="orientation=14", fixed="x=13.5,y=13.5,size=3", holdout="none")
    six, pair = "shape=7,scale=4,rotation=24,x=8,y=8,hue=12", "shape=4,x=5,y=5,hue=5,shape2=4,x2=5,y2=5,hue2=5"
    shapes = SpriteTask(size=TILE, factors="shape=7", fixed="scale=26", holdout="none")
    return [
        Row("bump\nx, y; stripes", paper, alone),
        Row("bumps\nfive factors", five),
        Row("bumps\norientation", oriented, swept(oriented)),
        Row("rotation\nangle", turned, swept(turned)),
        Row("sprites\nshape", shapes, torch.arange(COLUMNS, dtype=torch.float64)[:, None] % 7),
        sweep("scale", "scale=6..32..14", shapes="triangle"),
        sweep("rotation", "rotation=14", shapes="heart", fixed="scale=26,hue=330", colour=True),
        sweep("hue", "hue=14", shapes="disc", fixed="scale=32"),
        Row("sprites\nsix factors", SpriteTask(size=TILE, factors=six, holdout="none")),
        Row("two sprites\neight factors", SpriteTask(size=TILE, sprites=2, factors=pair, holdout="none")),
        Row("balls\nx, y, x2, y2", BallsTask(size=TILE, holdout="none")),
    ]


def contact_sheet(chosen: list[Row]) -> Figure:
    """Draw every row of images with its title on the left."""
    width, height = MARGIN + COLUMNS * (TILE + GAP), len(chosen) * (TILE + GAP)
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI)
    for place, row in enumerate(chosen):
        bottom = height - (place + 1) * (TILE + GAP) + GAP
        figure.figimage(row.tiles(), xo=MARGIN, yo=bottom, origin="upper")
        middle = (bottom + TILE / 2) / height
        figure.text((MARGIN - 8) / width, middle, row.title, ha="right", va="center", fontsize=9)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=SHOWN)
    with styled(), pyplot.rc_context({"savefig.bbox": None}):
        contact_sheet(rows()).savefig(parser.parse_args().out, dpi=DPI, metadata={"Software": None})


if __name__ == "__main__":
    main()
