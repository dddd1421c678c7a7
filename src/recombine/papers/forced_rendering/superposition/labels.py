"""Names of decoders, similarities, kernels and panels in the superposition study's Dataset."""

from __future__ import annotations

CNN_ARM, MLP_ARM, DARK = "CNN", "MLP", "CNN, dark bumps"


def of_depth(depth: int) -> str:
    """A CNN of another depth."""
    return f"CNN of depth {depth}"


THRESHOLDS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7)
"""Shares of a bump's height above which a pixel counts for an overlap; the published scripts have about the last."""
SHOWN_THRESHOLD = 0.1
"""Of the pictures. The scripts' one leaves a single pixel of a bump, and nothing of most held-out outputs."""


def overlap(threshold: float) -> str:
    """Pixel overlap at a threshold."""
    return f"overlap above {threshold:g}"


COSINE, DISTANCE, ALL_ROWS, STANDARDISED = "cosine", "L2 distance", "cosine, all rows", "cosine, rows standardised"
SIMILARITIES = (COSINE, DISTANCE, *map(overlap, THRESHOLDS), ALL_ROWS, STANDARDISED)
"""Ways to compare outputs with a kernel, and which rows of the matrix count: the interior where nothing is said."""
FAMILIES = ("or", "product", "radial", "sum")
"""Families of kernels; `or` is the smoothed binary factorized one."""
FULL_MATRIX = "cosine, full matrix"
CONTRASTS = (COSINE, DISTANCE, *map(overlap, THRESHOLDS), FULL_MATRIX)
"""Ways to measure blocks: held-out with kept outputs where nothing is said."""
KERNELS = {
    "cosine": "cosine similarity", "l2": "L2 distance", "overlap": f"pixel overlap above {SHOWN_THRESHOLD:g}"
}  # fmt: skip
"""Each kernel that is pictured, and what it is called in a figure."""
OUTPUT, SUM, X_ALONE, Y_ALONE, TRUTH = PANELS = ("answer", "superposition", "x alone", "y alone", "truth")
"""Images of Fig. 1d, as they are kept."""
