"""A figure as a small PNG, the same bytes wherever the same matplotlib draws it."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from matplotlib import pyplot

from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.results import Results

DPI = 50


def drawn(spec: FigureSpec, results: Results) -> bytes:
    """The figure's picture from stored results."""
    with without_umap():
        figure = spec.draw(*(results.dataset(study) for study in spec.studies))
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    pyplot.close(figure)
    return buffer.getvalue()


@contextmanager
def without_umap() -> Iterator[None]:
    """As if the extra were not installed: pictures are the same with and without it."""
    installed = sys.modules.get("umap")
    sys.modules["umap"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["umap"]
        if installed is not None:
            sys.modules["umap"] = installed
