"""The version of this package, which results name as part of where they came from."""

from __future__ import annotations

__version__ = "0.1.0"
