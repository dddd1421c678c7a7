"""Names of training sets in the stripe study's Dataset."""

from __future__ import annotations

WITH, WITHOUT, PERCENT, PERCENT_ALONE, FULL = FAMILIES = (
    "stripes", "bumps alone", "stripes, per cent", "bumps alone, per cent", "all training bumps",
)  # fmt: skip
