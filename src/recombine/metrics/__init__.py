"""Measurements: noun in, number out; no plotting, no training."""

from recombine.metrics.errors import extreme_pixel, hits, region_mean, squared_error

__all__ = ["extreme_pixel", "hits", "region_mean", "squared_error"]
