"""Names of kernels and panels in the superposition study's Dataset."""

from __future__ import annotations

KERNELS = {"cosine": "cosine similarity", "l2": "L2 distance", "overlap": "pixel overlap"}
"""Each kernel, and what it is called in a figure."""
JUDGED_KERNELS = ("overlap", "cosine")
"""The paper's Fig. 1e is of pixel overlap; cosine similarity has no threshold."""
OUTPUT, SUM, X_ALONE, Y_ALONE, TRUTH = PANELS = ("answer", "superposition", "x alone", "y alone", "truth")
"""Images of Fig. 1d, as they are kept."""
