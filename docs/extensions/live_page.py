"""Writes the explorer that the landing page shows: the paper's CNN, and the same trained on stripes and 100 bumps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recombine import explore
from recombine.reproduction.explorer import kept_decoders
from recombine.reproduction.results import Results

PAGE = "live_explorer.html"
RESULTS = Path(__file__).parents[2] / "results" / "paper"


def _write(app: Any, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        decoders = zip(("bumps alone", "stripes and 100 bumps"), kept_decoders(Results(RESULTS)), strict=False)
        explore(dict(decoders), title="Drag the point into the box").save(Path(app.outdir) / PAGE, overwrite=True)


def setup(app: Any) -> dict[str, bool]:
    """Write the page once the site is built."""
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True}
