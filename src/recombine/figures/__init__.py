"""Figures: Datasets in, a matplotlib Figure out. Nothing here trains, and nothing imports torch."""

from recombine.figures.registry import FIGURES, FigureSpec, figure_named, full_name

__all__ = ["FIGURES", "FigureSpec", "figure_named", "full_name"]
