"""Names of arms in the control study's Dataset."""

from __future__ import annotations

STRIPE_BUMPS = 100
"""Bumps beside the stripes of the composing CNN."""
FAILING, STRIPED = "failing", f"stripes and {STRIPE_BUMPS} bumps"
WHOLE, UNTRAINED = "whole grid", "untrained"
UNPENALISED, PENALISED = "low-rank, no penalty", "low-rank, both penalties"
LOW_RANK_WHOLE, LOW_RANK_UNTRAINED = "low-rank, whole grid", "low-rank, untrained"
CONTROLS = {
    FAILING: (STRIPED, WHOLE, UNTRAINED),
    UNPENALISED: (PENALISED, LOW_RANK_WHOLE, LOW_RANK_UNTRAINED),
}
"""Each failing arm, and the networks of the same architecture that it is compared with."""
INITIAL = {UNTRAINED: FAILING, LOW_RANK_UNTRAINED: UNPENALISED}
"""Each untrained arm, and the arm whose networks it has before their first step."""
