"""Metrics: functions from activations, images and metric tensors to numbers, without plotting or training."""

# Stage metrics are registered in the order of these imports, which is also the order of columns in results.
from recombine.metrics import geometry, probes, ranks, tuning, theory_metrics, steps  # isort: skip
from recombine.metrics.errors import (
    contrast,
    distance_inside,
    extreme_pixel,
    hits,
    interior,
    nearest_points,
    nearest_values,
    peak_scores,
    separate_peaks,
    squared_error,
)
from recombine.metrics.factorization import interaction_weights, landmarks, partial_factorization
from recombine.metrics.geometry import cross_terms, local_factorization, log_volume, roughness, volume_element
from recombine.metrics.gram_matrices import (
    FamilyAgreement,
    KernelAgreement,
    block_contrast,
    family_kernels,
    gram_matrix,
    kernel_agreement,
    kernel_families,
    theoretical_kernel,
)
from recombine.metrics.probes import LinearProbe
from recombine.metrics.ranks import effective_rank, matrix_effective_rank, schmidt_spectrum
from recombine.metrics.stages import (
    Reader,
    Tap,
    ensemble_reader,
    features,
    finite_difference_metric,
    metric_tensor,
    neighbour_metric,
)
from recombine.metrics.steps import step_change
from recombine.metrics.superposition import (
    averaged_codes,
    averaged_prediction,
    explained_variance,
    nonnegative_superposition,
    nonnegative_weights,
    stripe_superposition,
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
