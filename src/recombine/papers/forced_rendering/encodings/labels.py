"""Names of the hold-outs in the encodings study's Dataset."""

from __future__ import annotations

BOX, CORNER, CROSS, DARK = "box", "corner", "cross", "box, dark bumps"
