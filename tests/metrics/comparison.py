"""Stages that are given, their columns, and a diagnosis held against a study's stage profile of the same network."""

import numpy as np
import torch

from recombine.factors import Factor, FactorGrid
from recombine.metrics.registry import STAGE_METRICS, Stage, stage_profile


def stage_over(features, shape, held_out=None, exact=None):
    """A stage over a grid of integers."""
    grid = FactorGrid(tuple(Factor("xyz"[k], 0, count - 1, count) for k, count in enumerate(shape)))
    mask = torch.zeros(len(grid.points), dtype=torch.bool) if held_out is None else held_out
    return Stage("stage", features, grid.points, grid, mask, exact)


def columns_of(stage, names):
    """Columns of registered metrics of one stage."""
    return {name: values[0] for name, values in stage_profile([stage], names).columns.items()}


def assert_same_profile(result, profile):
    """Every column that both have is the same, and neither lacks one."""
    compared = set()
    for metric in STAGE_METRICS.in_studies():
        for column in metric.columns:
            values = result[column.name]
            if column.dims == ("point",):
                values = values.transpose("stage", "y", "x")
            elif "factor" in values.dims:
                values = values.mean("factor")
            np.testing.assert_allclose(
                profile[column.study_name], values, rtol=2e-4, atol=2e-5, err_msg=column.name, equal_nan=True
            )
            compared.add(column.study_name)
    assert compared == set(profile)
