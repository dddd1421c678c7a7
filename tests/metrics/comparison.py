"""A diagnosis held against a study's stage profile of the same network."""

import numpy as np

from recombine.metrics.registry import STAGE_METRICS


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
