"""Names of arms, stages and pictures in the rotation study's Dataset."""

from __future__ import annotations

ONE, MANY = "one digit", "many digits"
INPUT = "input"
"""The stage that is the code."""
INPUT_STAGES = 1
"""How many stages the code is, the first ones."""
OUTPUT, BLEND, TRUTH = "output_image", "blend_image", "truth_image"
"""Pictures across the gap, as they are kept."""
