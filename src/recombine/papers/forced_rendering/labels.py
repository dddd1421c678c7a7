"""Names that several studies of this paper share."""

from __future__ import annotations

CODES = ("bump", "rate")
"""The two encodings that the paper compares."""
ALL_CODES = ("bump", "onehot", "rate", "ramp", "positional")
"""Every encoding of a position that the studies compare."""
