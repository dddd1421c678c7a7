"""Names of markers and positions in the marker study's Dataset, and which networks count as composing.

A *marker* is a diagnostic, one number per network and position in it. Positions are comparable across architectures;
what is measured on outputs alone, or on the whole network, is at the output.
"""

from __future__ import annotations

from typing import NamedTuple

COMPOSING = 0.9
"""OOD accuracy from which on a network composes; below it, it fails."""

WHOLE_GRID = "whole grid"
"""Data of networks that were trained on the combinations that count as held out."""

FIRST, MIDDLE, LAST, OUTPUT = "first hidden stage", "middle hidden stage", "last hidden stage", "output"
MEAN, FALL = "mean over hidden stages and output", "first hidden stage less output"
POSITIONS = (FIRST, MIDDLE, LAST, OUTPUT, MEAN, FALL)


class Marker(NamedTuple):
    """A diagnostic in words."""

    title: str
    staged: bool = True
    """Whether every stage has one, not the output alone."""
    needs_targets: bool = False
    """Whether it needs to be known what is right for held-out combinations."""


FACTORIZATION, SPREAD = "factorization", "spread"
MARKERS = {
    "probe_held_out": Marker("probe R², held-out points"),
    "probe_in_sample": Marker("probe R², in sample"),
    FACTORIZATION: Marker("factorization F"),
    "factorization_held": Marker("F, held-out points"),
    "factorization_differences": Marker("F by finite differences"),
    SPREAD: Marker("spread of log10 dv"),
    "spread_held": Marker("spread of log10 dv, held-out points"),
    "spread_excess": Marker("spread of log10 dv, held-out less kept"),
    "contrast": Marker("mean log10 dv, held-out less kept"),
    "roughness": Marker("roughness of log10 dv"),
    "roughness_held": Marker("roughness of log10 dv, held-out points"),
    "cross_term": Marker("cross-terms"),
    "cross_term_held": Marker("cross-terms, held-out points"),
    "stripe_index": Marker("stripe index of units"),
    "localisation_index": Marker("localisation index of units"),
    "effective_rank": Marker("effective rank"),
    "schmidt_rank": Marker("Schmidt rank of the kernel"),
    "single_factor": Marker("PF_Coeff of the kernel"),
    "superposed": Marker("superposition of training images, over chance", staged=False),
    "memorised": Marker("superposition of own outputs, equal weights", staged=False),
    "kernel_margin": Marker("OR kernel over product and radial", staged=False),
    "kernel_binary": Marker("agreement with the binary kernel", staged=False),
    "block_contrast": Marker("block contrast of the kernel", staged=False),
    "several_peaks": Marker("held-out outputs with several peaks", staged=False),
    "kernel_distance": Marker("distance of the kernel to the ideal one", staged=False, needs_targets=True),
    "id_error": Marker("ID error", staged=False),
    "training_error": Marker("training error", staged=False),
}
"""By name. Probes need held-out factor values, not images; superposition needs training images."""
