"""Names of arms in the tuning study's Dataset."""

from __future__ import annotations

STRIPES, WITH_BUMPS = ARMS = ("stripes only", "stripes and bumps")
