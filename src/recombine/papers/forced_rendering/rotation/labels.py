"""Names of arms, stages and pictures in the rotation study's Dataset."""

from __future__ import annotations

ONE, MANY = "one digit", "many digits"
INPUT = "input"
"""The stage that is the code."""
OUTPUT, BLEND, TRUTH = "answer", "blend", "truth"
"""Pictures across the gap, as they are kept."""
