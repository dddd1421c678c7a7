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


FACTORIZED, VOLUME = "factorization", "volume"
NAMED = (FACTORIZED, VOLUME)
"""Families of markers that the paper names; all others are their rivals."""


class Marker(NamedTuple):
    """A diagnostic in words."""

    title: str
    family: str
    """What it measures: forms of one diagnostic are no rivals of each other."""
    sign: int = 0
    """Of composing less failing networks as the paper predicts it; 0 where it predicts none."""
    staged: bool = True
    """Whether every stage has one, not the output alone."""
    needs_targets: bool = False
    """Whether it needs to be known what is right for held-out combinations."""


FACTORIZATION, SPREAD = "factorization", "spread"
MARKERS = {
    "probe_held_out": Marker("probe R², held-out points", "probe"),
    "probe_in_sample": Marker("probe R², in sample", "probe"),
    FACTORIZATION: Marker("factorization F", FACTORIZED, 1),
    "factorization_held": Marker("F, held-out points", FACTORIZED, 1),
    "factorization_differences": Marker("F by finite differences", FACTORIZED, 1),
    SPREAD: Marker("spread of log10 dv", VOLUME, -1),
    "spread_held": Marker("spread of log10 dv, held-out points", VOLUME, -1),
    "spread_excess": Marker("spread of log10 dv, held-out less kept", VOLUME, -1),
    "contrast": Marker("mean log10 dv, held-out less kept", VOLUME),
    "roughness": Marker("roughness of log10 dv", VOLUME, -1),
    "roughness_held": Marker("roughness of log10 dv, held-out points", VOLUME, -1),
    "cross_term": Marker("cross-terms", FACTORIZED),
    "cross_term_held": Marker("cross-terms, held-out points", FACTORIZED),
    "stripe_index": Marker("stripe index of units", "tuning"),
    "localisation_index": Marker("localisation index of units", "tuning"),
    "effective_rank": Marker("effective rank", "rank"),
    "schmidt_rank": Marker("Schmidt rank of the kernel", "kernel"),
    "single_factor": Marker("PF_Coeff of the kernel", "kernel"),
    "superposed": Marker("superposition of training images, over chance", "superposition", staged=False),
    "memorised": Marker("superposition of own outputs, equal weights", "superposition", staged=False),
    "kernel_margin": Marker("OR kernel over product and radial", "kernel", staged=False),
    "kernel_binary": Marker("agreement with the binary kernel", "kernel", staged=False),
    "block_contrast": Marker("block contrast of the kernel", "kernel", staged=False),
    "several_peaks": Marker("held-out outputs with several peaks", "peaks", staged=False),
    "kernel_distance": Marker("distance of the kernel to the ideal one", "kernel", staged=False, needs_targets=True),
    "id_error": Marker("ID error", "error", staged=False),
    "training_error": Marker("training error", "error", staged=False),
}
"""By name. Probes need held-out factor values, not images; superposition needs training images."""


def predicted_sign(marker: str, position: str) -> int:
    """Of composing less failing networks as the paper predicts it there: what is kept has the smaller fall."""
    sign = MARKERS[marker].sign
    return -sign if position == FALL else sign
