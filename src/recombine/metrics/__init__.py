"""Measurements: noun in, number out; no plotting, no training."""

import types

# Columns are in the order in which metrics are registered, which is that of these modules.
from recombine.metrics import geometry, probes, ranks, tuning, theory_metrics  # isort: skip
from recombine.metrics.errors import contrast as contrast
from recombine.metrics.errors import distance_inside as distance_inside
from recombine.metrics.errors import extreme_pixel as extreme_pixel
from recombine.metrics.errors import hits as hits
from recombine.metrics.errors import interior as interior
from recombine.metrics.errors import nearest_values as nearest_values
from recombine.metrics.errors import peak_scores as peak_scores
from recombine.metrics.errors import separate_peaks as separate_peaks
from recombine.metrics.errors import squared_error as squared_error
from recombine.metrics.factorization import interaction_weights as interaction_weights
from recombine.metrics.factorization import landmarks as landmarks
from recombine.metrics.factorization import partial_factorization as partial_factorization
from recombine.metrics.geometry import cross_terms as cross_terms
from recombine.metrics.geometry import local_factorization as local_factorization
from recombine.metrics.geometry import log_volume as log_volume
from recombine.metrics.geometry import roughness as roughness
from recombine.metrics.geometry import volume_element as volume_element
from recombine.metrics.gram_matrices import FamilyAgreement as FamilyAgreement
from recombine.metrics.gram_matrices import KernelAgreement as KernelAgreement
from recombine.metrics.gram_matrices import block_contrast as block_contrast
from recombine.metrics.gram_matrices import family_kernels as family_kernels
from recombine.metrics.gram_matrices import gram_matrix as gram_matrix
from recombine.metrics.gram_matrices import kernel_agreement as kernel_agreement
from recombine.metrics.gram_matrices import kernel_families as kernel_families
from recombine.metrics.gram_matrices import theoretical_kernel as theoretical_kernel
from recombine.metrics.metric_tensors import finite_difference_metric as finite_difference_metric
from recombine.metrics.metric_tensors import metric_tensor as metric_tensor
from recombine.metrics.probes import LinearProbe as LinearProbe
from recombine.metrics.ranks import effective_rank as effective_rank
from recombine.metrics.ranks import matrix_effective_rank as matrix_effective_rank
from recombine.metrics.ranks import schmidt_spectrum as schmidt_spectrum
from recombine.metrics.stages import Reader as Reader
from recombine.metrics.stages import Tap as Tap
from recombine.metrics.stages import ensemble_reader as ensemble_reader
from recombine.metrics.stages import features as features
from recombine.metrics.superposition import averaged_codes as averaged_codes
from recombine.metrics.superposition import averaged_prediction as averaged_prediction
from recombine.metrics.superposition import explained_variance as explained_variance
from recombine.metrics.superposition import nonnegative_superposition as nonnegative_superposition
from recombine.metrics.superposition import nonnegative_weights as nonnegative_weights
from recombine.metrics.superposition import stripe_superposition as stripe_superposition
from recombine.metrics.superposition import superposition_scores as superposition_scores
from recombine.metrics.tuning import Band as Band
from recombine.metrics.tuning import Tuning as Tuning
from recombine.metrics.tuning import band_alignment as band_alignment
from recombine.metrics.tuning import band_index as band_index
from recombine.metrics.tuning import band_position as band_position
from recombine.metrics.tuning import mean_band_index as mean_band_index
from recombine.metrics.tuning import neuron_tuning as neuron_tuning

__all__ = [name for name, own in list(globals().items()) if name[0] != "_" and not isinstance(own, types.ModuleType)]
