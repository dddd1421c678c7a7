"""Names of arms in the theory study's Dataset."""

from __future__ import annotations

CNN_FAILING, CNN_COMPOSING, CNN_WHOLE, CNN_UNTRAINED = "CNN", "CNN, stripes", "CNN, whole grid", "CNN, untrained"
MLP_FAILING, MLP_COMPOSING, MLP_WHOLE, MLP_UNTRAINED = "MLP", "MLP, stripes", "MLP, whole grid", "MLP, untrained"
LOW_RANK_FAILING, LOW_RANK_COMPOSING = "low-rank", "low-rank, penalties"
LOW_RANK_WHOLE, LOW_RANK_UNTRAINED = "low-rank, whole grid", "low-rank, untrained"

FAMILIES = {
    "CNN": (CNN_FAILING, CNN_COMPOSING, CNN_WHOLE, CNN_UNTRAINED),
    "low-rank": (LOW_RANK_FAILING, LOW_RANK_COMPOSING, LOW_RANK_WHOLE, LOW_RANK_UNTRAINED),
    "MLP": (MLP_FAILING, MLP_COMPOSING, MLP_WHOLE, MLP_UNTRAINED),
}
"""By architecture: without a remedy, with one, trained on the whole grid, and the first ones before training."""
COMPOSING = {"CNN": CNN_COMPOSING, "low-rank": LOW_RANK_COMPOSING, "MLP": MLP_WHOLE}
"""By architecture, the networks that compose. Stripes do not make these MLPs compose (seeds 0 to 7: 30 % in place)."""
INITIAL = {untrained: failing for failing, _, _, untrained in FAMILIES.values()}
"""Each untrained arm, and the arm whose networks it has before their first step."""
