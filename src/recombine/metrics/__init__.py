"""Measurements: noun in, number out; no plotting, no training."""

# Columns are in the order in which metrics are registered, which is that of these modules.
from recombine.metrics import geometry, probes, ranks, volumes, tuning, theory_metrics  # isort: skip
from recombine.metrics.combinations import nonnegative_superposition, nonnegative_weights, stripe_superposition
from recombine.metrics.errors import (
    contrast,
    distance_inside,
    extreme_pixel,
    hits,
    interior,
    nearest_values,
    squared_error,
)
from recombine.metrics.factorization import (
    interaction_weights,
    landmarks,
    partial_factorization,
)
from recombine.metrics.geometry import cross_terms, local_factorization, volume_element
from recombine.metrics.kernel_families import FamilyAgreement, family_kernels, kernel_families
from recombine.metrics.kernels import (
    KernelAgreement,
    block_contrast,
    gram_matrix,
    kernel_agreement,
    theoretical_kernel,
)
from recombine.metrics.metric_tensors import finite_difference_metric, metric_tensor
from recombine.metrics.peaks import peak_scores, separate_peaks
from recombine.metrics.probes import LinearProbe
from recombine.metrics.ranks import effective_rank, matrix_effective_rank, schmidt_spectrum
from recombine.metrics.stages import Reader, Tap, ensemble_reader, features
from recombine.metrics.superposition import (
    averaged_codes,
    averaged_prediction,
    explained_variance,
    superposition_scores,
)
from recombine.metrics.tuning import (
    Band,
    Tuning,
    band_alignment,
    band_index,
    band_position,
    mean_band_index,
    neuron_tuning,
)
from recombine.metrics.volumes import log_volume, roughness

__all__ = [
    "Band",
    "FamilyAgreement",
    "KernelAgreement",
    "LinearProbe",
    "Reader",
    "Tap",
    "Tuning",
    "averaged_codes",
    "averaged_prediction",
    "band_alignment",
    "band_index",
    "band_position",
    "block_contrast",
    "contrast",
    "cross_terms",
    "distance_inside",
    "effective_rank",
    "ensemble_reader",
    "explained_variance",
    "extreme_pixel",
    "family_kernels",
    "features",
    "finite_difference_metric",
    "gram_matrix",
    "hits",
    "interaction_weights",
    "interior",
    "kernel_agreement",
    "kernel_families",
    "landmarks",
    "local_factorization",
    "log_volume",
    "matrix_effective_rank",
    "mean_band_index",
    "metric_tensor",
    "nearest_values",
    "neuron_tuning",
    "nonnegative_superposition",
    "nonnegative_weights",
    "partial_factorization",
    "peak_scores",
    "roughness",
    "schmidt_spectrum",
    "separate_peaks",
    "squared_error",
    "stripe_superposition",
    "superposition_scores",
    "theoretical_kernel",
    "volume_element",
]
