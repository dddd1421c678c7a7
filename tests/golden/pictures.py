"""A figure as a small PNG, the same bytes wherever the same matplotlib draws it."""

import io
import sys
from unittest import mock

from matplotlib import pyplot

from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.results import Results

DPI = 50


def drawn(spec: FigureSpec, results: Results) -> bytes:
    """The figure's picture from stored results."""
    with mock.patch.dict(sys.modules, {"umap": None}):  # an extra: pictures are the same with and without it
        figure = spec.draw(*(results.dataset(study) for study in spec.studies))
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    pyplot.close(figure)
    return buffer.getvalue()
