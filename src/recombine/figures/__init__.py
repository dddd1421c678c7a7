"""Figures: a Dataset in, a matplotlib Figure out. Nothing here trains, and nothing imports torch."""

from collections.abc import Callable
from typing import Any

from recombine.figures.encodings import encodings_caption, encodings_figure

FIGURES: dict[str, Callable[..., Any]] = {"encodings": encodings_figure}
CAPTIONS: dict[str, Callable[..., str]] = {"encodings": encodings_caption}
"""By the study whose Dataset they draw."""

__all__ = ["CAPTIONS", "FIGURES", "encodings_caption", "encodings_figure"]
