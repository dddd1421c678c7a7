"""Names of arms in the Dataset of the study of many factors."""

from __future__ import annotations

CNN_ALONE, CNN_ISOLATED, CNN_PAIRS = "CNN", "CNN, isolated factors", "CNN, isolated pairs"
LOW_RANK, LOW_RANK_PENALISED = "low-rank", "low-rank, penalties"
COORDINATE = "coordinate MLP"
ARMS = (CNN_ALONE, CNN_ISOLATED, CNN_PAIRS, LOW_RANK, LOW_RANK_PENALISED, COORDINATE)
FACTORS = ("x", "y", "intensity", "size", "orientation")
"""In the order in which they are added."""
ALL_KEPT = 0
"""In the place of a number of combinations: every kept one."""
