"""Names of the decoders in the MLP study's Dataset."""

from __future__ import annotations

CNN_ARM, MLP_ARM = "CNN", "MLP"
