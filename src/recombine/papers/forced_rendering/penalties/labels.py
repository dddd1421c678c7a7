"""Names of arms in the penalty study's Dataset."""

from __future__ import annotations

NONE, ENTROPY, VARIANCE, BOTH = "none", "entropy", "variance", "both"
ARMS = {NONE: "no penalty", ENTROPY: "entropy", VARIANCE: "variance", BOTH: "both"}
"""Each arm, and what it is called in a figure."""
UNIT, RAW = "unit vectors", "raw vectors"
"""What the variance penalty is of: the paper's convention, and the published scripts'."""
