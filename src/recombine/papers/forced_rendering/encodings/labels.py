"""Names of the hold-outs in the encodings study's Dataset."""

from __future__ import annotations

BOX, CROSS, DARK = "box", "cross", "box, dark bumps"
