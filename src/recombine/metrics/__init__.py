"""Measurements: noun in, number out; no plotting, no training."""

from recombine.metrics.bands import Band, band_alignment, band_index, band_position, mean_band_index
from recombine.metrics.combinations import nonnegative_superposition, stripe_superposition
from recombine.metrics.cross_terms import cross_terms
from recombine.metrics.errors import contrast, extreme_pixel, hits, region_mean, squared_error
from recombine.metrics.factorization import factorization_curve, interaction_weights, partial_factorization
from recombine.metrics.geometry import local_factorization, mean_factorization, volume_element
from recombine.metrics.kernel_families import FamilyAgreement, family_kernels, kernel_families
from recombine.metrics.kernels import (
    KernelAgreement,
    block_contrast,
    gram_matrix,
    kernel_agreement,
    theoretical_kernel,
)
from recombine.metrics.metric_tensors import finite_difference_metric, metric_tensor, neighbour_metric
from recombine.metrics.nearest_values import nearest_values
from recombine.metrics.nonnegative import nonnegative_weights
from recombine.metrics.peaks import peak_scores, separate_peaks
from recombine.metrics.probes import LinearProbe, probe_scores
from recombine.metrics.ranks import effective_rank, matrix_effective_rank, schmidt_spectrum
from recombine.metrics.regions import distance_inside, interior
from recombine.metrics.roughness import laplacian, roughness
from recombine.metrics.sampled_kernels import sampled_factorization, sampled_interaction_weights
from recombine.metrics.sampled_means import (
    Estimate,
    mean_estimate,
    ratio_estimate,
    repeated_estimate,
    stratified_sample,
)
from recombine.metrics.sampling_bias import SamplingBias, sampling_bias
from recombine.metrics.stages import Reader, Tap, decoder_reader, ensemble_reader, features, stage_sizes
from recombine.metrics.sub_grids import SubGrid, draw_sub_grids, sub_grid_shape
from recombine.metrics.superposition import (
    averaged_codes,
    averaged_prediction,
    explained_variance,
    memorised_prediction,
    superposition_scores,
)
from recombine.metrics.tuning import Tuning, neuron_tuning
from recombine.metrics.volume_statistics import held_out_statistics, log_volume

# isort: split
# Columns are in the order in which metrics are registered: these, and what they import, come last.
import recombine.metrics.factorization_tests
import recombine.metrics.theory_metrics  # noqa: F401
from recombine.metrics.kernel_axis import KernelAxis, kernel_axis, landmarks

__all__ = [
    "Band",
    "Estimate",
    "FamilyAgreement",
    "KernelAgreement",
    "KernelAxis",
    "LinearProbe",
    "Reader",
    "SamplingBias",
    "SubGrid",
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
    "decoder_reader",
    "distance_inside",
    "draw_sub_grids",
    "effective_rank",
    "ensemble_reader",
    "explained_variance",
    "extreme_pixel",
    "factorization_curve",
    "family_kernels",
    "features",
    "finite_difference_metric",
    "gram_matrix",
    "held_out_statistics",
    "hits",
    "interaction_weights",
    "interior",
    "kernel_agreement",
    "kernel_axis",
    "kernel_families",
    "landmarks",
    "laplacian",
    "local_factorization",
    "log_volume",
    "matrix_effective_rank",
    "mean_band_index",
    "mean_estimate",
    "mean_factorization",
    "memorised_prediction",
    "metric_tensor",
    "nearest_values",
    "neighbour_metric",
    "neuron_tuning",
    "nonnegative_superposition",
    "nonnegative_weights",
    "partial_factorization",
    "peak_scores",
    "probe_scores",
    "ratio_estimate",
    "region_mean",
    "repeated_estimate",
    "roughness",
    "sampled_factorization",
    "sampled_interaction_weights",
    "sampling_bias",
    "schmidt_spectrum",
    "separate_peaks",
    "squared_error",
    "stage_sizes",
    "stratified_sample",
    "stripe_superposition",
    "sub_grid_shape",
    "superposition_scores",
    "theoretical_kernel",
    "volume_element",
]
