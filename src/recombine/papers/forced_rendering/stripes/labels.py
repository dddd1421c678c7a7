"""Names of training sets in the stripe study's Dataset."""

from __future__ import annotations

WITH, WITHOUT, PERCENT, FULL = "stripes", "bumps alone", "stripes, per cent", "all training bumps"
