"""Names of arms in the penalty study's Dataset."""

from __future__ import annotations

NONE, ENTROPY, VARIANCE, BOTH = "none", "entropy", "variance", "both"
ARMS = {NONE: "no penalty", ENTROPY: "entropy", VARIANCE: "variance", BOTH: "both"}
"""Each arm, and what it is called in a figure."""
UNIT, RAW, OTHER_SIZE = "unit vectors", "raw vectors", "unit vectors, another N"
"""What the variance penalty is of, along `vectors`: the paper's convention, the published scripts', and the paper's
with images of another size. Without the variance penalty unit and raw vectors are the same, and are there as unit."""
