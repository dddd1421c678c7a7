"""Declared versions of what is measured: results that depend on a metric are measured again when its version is raised.

A stage metric declares its own where it is registered; functions that studies call have theirs here.
"""

from __future__ import annotations

from collections.abc import Iterable

from recombine.errors import InvalidValue, listed
from recombine.metrics.registry import STAGE_METRICS, versions

STAGE_PROFILE = "stage_profile"
"""Stands for all metrics of studies' stage profile."""
FUNCTION_VERSIONS: dict[str, int] = {
    "averaged_codes": 1,
    "averaged_prediction": 1,
    "band_alignment": 1,
    "band_index": 1,
    "band_position": 1,
    "block_contrast": 1,
    "distance_inside": 1,
    "effective_rank": 1,
    "ensemble_reader": 1,
    "extreme_pixel": 1,
    "features": 1,
    "gram_matrix": 1,
    "hits": 1,
    "interior": 1,
    "kernel_agreement": 1,
    "jacobian_rank": 1,
    "kernel_families": 1,
    "landmarks": 1,
    "learnt_complexity": 1,
    "log_volume": 1,
    "matrix_effective_rank": 1,
    "mean_band_index": 1,
    "memorised_prediction": 1,
    "metric_tensor": 1,
    "nearest_values": 1,
    "neuron_tuning": 1,
    "nonnegative_superposition": 1,
    "nonnegative_weights": 1,
    "partial_factorization": 1,
    "pixel_ranks": 1,
    "peak_scores": 1,
    "roughness": 1,
    "schmidt_spectrum": 1,
    "squared_error": 1,
    "stripe_superposition": 1,
    "superposition_scores": 1,
    "theoretical_kernel": 1,
}
"""Of the functions that studies call themselves; raise one when its numbers change."""


def metric_versions(names: Iterable[str]) -> dict[str, int]:
    """Versions of functions and stage metrics by name; `stage_profile` gives those of all that studies' profile has.

    >>> metric_versions(["gram_matrix"])
    {'gram_matrix': 1}
    """
    numbers: dict[str, int] = {}
    for name in names:
        if name == STAGE_PROFILE:
            numbers.update(versions(metric.name for metric in STAGE_METRICS.in_studies()))
        elif name in FUNCTION_VERSIONS:
            numbers[name] = FUNCTION_VERSIONS[name]
        elif name in STAGE_METRICS:
            numbers.update(versions([name]))
        else:
            raise InvalidValue("metrics", name, listed([STAGE_PROFILE, *FUNCTION_VERSIONS]))
    return numbers
