"""Names of arms in the regime study's Dataset."""

from __future__ import annotations

FAILING, STRIPES, STRIPES_BUMPS = "bumps alone", "stripes only", "stripes and bumps"
UNPENALISED, PENALISED = "low-rank, no penalty", "low-rank, both penalties"
RIVALS = {STRIPES: FAILING, STRIPES_BUMPS: FAILING, PENALISED: UNPENALISED}
"""Each composing arm, and the arm that it is compared with: the same network without the remedy."""
