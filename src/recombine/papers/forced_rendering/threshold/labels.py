"""Names of protocols and families in the threshold study's Dataset, and the exponents that the paper claims."""

from __future__ import annotations

from itertools import product
from typing import Literal, NamedTuple

TARGET = 0.9
"""Accuracy to be reached."""

Family = Literal["bumps", "stripes"]
BUMPS: Family = "bumps"
STRIPES: Family = "stripes"
FAMILIES: tuple[Family, ...] = (BUMPS, STRIPES)
CLAIMED: dict[str, tuple[int, tuple[float, float]]] = {BUMPS: (3, (2.5, 3.5)), STRIPES: (1, (0.75, 1.25))}
"""The paper's exponent of each family, and the range that counts as it."""


class Protocol(NamedTuple):
    """What the paper does not say."""

    region: Literal["whole", "kept"]
    centers: Literal["integer", "real"]
    budget: Literal["steps", "epochs"]

    def __str__(self) -> str:
        return "/".join(self)


REGIONS: tuple[Literal["whole", "kept"], ...] = ("whole", "kept")
CENTERS: tuple[Literal["integer", "real"], ...] = ("integer", "real")
BUDGETS: tuple[Literal["steps", "epochs"], ...] = ("steps", "epochs")
PROTOCOLS = tuple(Protocol(*choices) for choices in product(REGIONS, CENTERS, BUDGETS))
"""The first is: whole grid, integer centres, fixed steps."""
