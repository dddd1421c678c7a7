"""What the failing networks draw instead, and with which kernel.

Scores: `over_truth`, `over_null`: fraction of held-out variance that superposition explains, less the true images' or
the null's; `margin`: correlation of the binary kernel less that of its best rival; `p_value`: of the permutation test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recombine.papers.forced_rendering.claims import FITTED
from recombine.papers.forced_rendering.superposition.labels import JUDGED_KERNELS, KERNELS
from recombine.reproduction.claims import EFFECT, Claim, Condition, Judgement
from recombine.reproduction.tables import per_seed

if TYPE_CHECKING:
    import xarray

FORMS = ("averaged", "memorised")
FAR_ABOVE_NULL = 0.2

SUPERPOSED = Claim(
    "C2",
    "Held-out outputs superpose memorised data (§3.3, Fig. 1d)",
    premises=FITTED,
    conditions=(Condition("over_truth", "above", 0.0), Condition("over_null", "above", FAR_ABOVE_NULL)),
)
BINARY_KERNEL = Claim(
    "C3",
    "A binary factorized kernel is learnt (§3.3, Fig. 1e)",
    premises=FITTED,
    conditions=(Condition("p_value", "below", 0.001), Condition("margin", "above", 0.0)),
)
BLOCKS = Claim(
    "C14", "Bump codes give stronger block structure than rate codes (Fig. 8)", premises=(), conditions=EFFECT
)
CLAIMS = (SUPERPOSED, BINARY_KERNEL, BLOCKS)


def judge(result: xarray.Dataset) -> list[Judgement]:
    """Verdicts on superposition, by its form, and on the kernel and its blocks, by kernel."""
    bump = result.sel(encoding="bump")
    learnt = per_seed(bump["id_over_blank"])
    superposed = {
        form: {
            "id_over_blank": learnt,
            "over_truth": per_seed(bump[form] - bump["truth"]),
            "over_null": per_seed(bump[form] - bump[f"{form}_null"]),
        }
        for form in FORMS
    }
    binary = {
        kernel: {
            "id_over_blank": learnt,
            "margin": per_seed(bump[f"{kernel}_margin"]),
            "p_value": per_seed(bump[f"{kernel}_p"]),
        }
        for kernel in JUDGED_KERNELS
    }
    blocks = {kernel: {"effect": per_seed(_bump_less_rate(result[f"{kernel}_contrast"]))} for kernel in KERNELS}
    return [SUPERPOSED.judge(superposed), BINARY_KERNEL.judge(binary), BLOCKS.judge(blocks)]


def _bump_less_rate(contrast: xarray.DataArray) -> xarray.DataArray:
    return contrast.sel(encoding="bump") - contrast.sel(encoding="rate")
