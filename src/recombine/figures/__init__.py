"""Figures of a diagnosis and of a benchmark: data in, a matplotlib Figure out. Nothing here trains."""
