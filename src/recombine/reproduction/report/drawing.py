"""Figures to files: PNG to look at, SVG to print."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib import pyplot
from matplotlib.figure import Figure

from recombine.manifest import write_into
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.panels import styled

if TYPE_CHECKING:
    import xarray

KINDS = ("png", "svg")
PADDING = 0.1
"""Inches around what is drawn."""


def save_figure(spec: FigureSpec, datasets: list[xarray.Dataset], folder: Path) -> dict[str, bytes]:
    """Draw a figure, write it in every kind, and return the files' contents."""
    return save_drawn(spec.draw(*datasets), folder, spec.name)


def save_drawn(figure: Figure, folder: Path, name: str) -> dict[str, bytes]:
    """Write a figure in every kind, close it, and return the files' contents."""
    figure.draw_without_rendering()
    figure.set_layout_engine(None)  # laid out and measured once, not again for every kind of file
    area = figure.get_tightbbox().padded(PADDING)
    contents = {}
    for kind in KINDS:
        buffer = io.BytesIO()
        with styled():  # names inside an SVG are random otherwise
            metadata = {"Date": None} if kind == "svg" else {"Software": None}
            figure.savefig(buffer, format=kind, bbox_inches=area, metadata=metadata)
        contents[kind] = buffer.getvalue()
    pyplot.close(figure)
    write_into(folder, {f"{name}.{kind}": content for kind, content in contents.items()})
    return contents
