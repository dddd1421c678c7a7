"""Version of this package, recorded with every result, and where its papers are found."""

from __future__ import annotations

__version__ = "0.1.0"
PAPERS = "recombine.papers"
"""Entry-point group under which papers are installed."""
