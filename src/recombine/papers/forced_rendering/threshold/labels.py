"""Names of protocols and families in the threshold study's Dataset, and what the paper claims of them."""

from __future__ import annotations

from itertools import product
from typing import Literal, NamedTuple

TARGET = 0.9
"""Accuracy to be reached."""

Family = Literal["bumps", "stripes"]
BUMPS: Family = "bumps"
STRIPES: Family = "stripes"
FAMILIES: tuple[Family, ...] = (BUMPS, STRIPES)
CLAIMED: dict[str, int] = {BUMPS: 3, STRIPES: 1}
"""The paper's exponent of each family."""
CUBIC = 2.5
"""An exponent above this counts as the paper's 3."""
LINEAR = (0.75, 1.25)
"""One between these counts as the paper's 1."""


class Protocol(NamedTuple):
    """What the paper does not say, and which network is trained."""

    region: Literal["whole", "kept"]
    centers: Literal["integer", "real"]
    budget: Literal["steps", "epochs"]
    network: Literal["paper", "small"]

    def __str__(self) -> str:
        return "/".join(self)


REGIONS: tuple[Literal["whole", "kept"], ...] = ("whole", "kept")
CENTERS: tuple[Literal["integer", "real"], ...] = ("integer", "real")
BUDGETS: tuple[Literal["steps", "epochs"], ...] = ("steps", "epochs")
PRIMARY = Protocol("whole", "integer", "steps", "paper")
"""Bumps over the whole grid: what the exponent is judged on."""
LITERAL = Protocol("kept", "integer", "steps", "paper")
"""Bumps outside the hold-out, accuracy inside: what the paper says literally."""
PROTOCOLS = (PRIMARY, LITERAL, *(Protocol(*choices, "small") for choices in product(REGIONS, CENTERS, BUDGETS)))
"""The paper's network under two protocols, then a small one under all eight."""

SPELT = {
    "whole": "whole grid", "kept": "kept only", "integer": "integer", "real": "real", "steps": "fixed steps",
    "epochs": "fixed epochs", "paper": "paper's network", "small": "small network",
}  # fmt: skip


def spelt(protocol: str) -> str:
    """A protocol in words.

    >>> spelt("whole/integer/steps/paper")
    "paper's network: whole grid, integer, fixed steps"
    """
    *choices, network = str(protocol).split("/")
    return f"{SPELT[network]}: {', '.join(SPELT[choice] for choice in choices)}"
