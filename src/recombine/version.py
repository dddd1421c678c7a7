"""The version of this package, which is stored with every result, and where to find installed papers."""

from __future__ import annotations

__version__ = "0.1.0"
PAPERS = "recombine.papers"
"""Entry-point group for installed papers."""
