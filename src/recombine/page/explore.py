"""Explorer pages: anyone's decoder in one HTML file, where one drags the point into the hold-out."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from recombine.checks import given_path, one_of, whole_number
from recombine.data import LabelledImages
from recombine.diagnosis.arguments import TargetFunction
from recombine.encodings import Encoding
from recombine.errors import InvalidValue
from recombine.factors import Factor, FactorGrid
from recombine.files import write
from recombine.holdouts import Holdout
from recombine.metrics.stages import Encode
from recombine.page.blobs import Blobs
from recombine.page.document import document
from recombine.page.labels import labels_of
from recombine.page.model import page_model
from recombine.page.subject import Subject, parts_of, subjects_of
from recombine.page.training_panel import training_panel
from recombine.page.widget import available, explorer_widget
from recombine.store import Run
from recombine.tasks import ArrayTask
from recombine.version import __version__

FRAME_HEIGHT = 900
"""Of the frame in a notebook, in pixels."""


@dataclass(frozen=True)
class ExplorerPage:
    """A page that needs no other file; notebooks show it in a frame, as a widget where anywidget is installed.

    Parameters
    ----------
    html
        The page.
    notes
        What a reader must know of each decoder, as the page says it.

    Examples
    --------
    >>> import recombine as rc
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from torch import nn
    >>> page = rc.explore(nn.Linear(2, 16), "x=0:3,y=0:3", title="Mine")
    >>> with TemporaryDirectory() as folder:
    ...     name = page.save(Path(folder) / "page.html").name
    >>> name, page.notes
    ('page.html', ())
    """

    html: str
    notes: tuple[str, ...]
    """What a reader must know of each decoder, as the page says it."""

    def save(self, path: str | Path) -> Path:
        """Write the page to a file."""
        path = given_path("out", path)
        write(path, self.html.encode(), "out")
        return path

    def widget(self, height: int = FRAME_HEIGHT) -> Any:
        """The page as an `anywidget.AnyWidget`, whose `address` is the present view and may be set.

        Parameters
        ----------
        height
            Of its frame, in pixels.

        Returns
        -------
        anywidget.AnyWidget
            For Jupyter, VS Code, Colab, and marimo (`mo.ui.anywidget`).
        """
        return explorer_widget(self.html, whole_number("height", height))

    def _ipython_display_(self) -> None:
        from IPython.display import display

        if available():
            display(self.widget())
        else:
            display({"text/html": self._repr_html_()}, raw=True)

    def _repr_html_(self) -> str:
        frame = f'width="100%" height="{FRAME_HEIGHT}" style="border:0" sandbox="allow-scripts"'
        return f'<iframe {frame} srcdoc="{html.escape(self.html)}"></iframe>'

    def __repr__(self) -> str:
        return f"ExplorerPage({len(self.html):,} characters, notes={list(self.notes)})"


def explore(
    module: nn.Module | Run | Sequence[nn.Module | Run] | Mapping[str, nn.Module | Run],
    grid: FactorGrid | str | None = None,
    *,
    encode: Encode | Encoding | str | None = None,
    holdout: Holdout | Tensor | np.ndarray | str | None = None,
    targets: Tensor | np.ndarray | TargetFunction | None = None,
    background: float | None = None,
    data: ArrayTask | LabelledImages | str | Path | None = None,
    image_shape: tuple[int, ...] | None = None,
    title: str | None = None,
    labels: Sequence[Mapping[str, str]] | None = None,
    training: bool = False,
) -> ExplorerPage:
    """A page on which a decoder runs live while one moves through its factors.

    Parameters
    ----------
    module
        A module that maps encoded factor values to outputs, or a run of a store; several, or several by name, can be
        compared side by side. The modules are copied and left as they are.
    grid
        Factors and values, or a text as `x=0:27,y=0:27`; runs bring their own.
    encode
        An encoding (by name, or one of ours), a function from `(point, factor)` values to inputs, or nothing: the
        values themselves.
    holdout
        Combinations held out of training: a hold-out, by name, or a boolean mask over the grid.
    targets
        Right outputs, one row per grid point in its order, or a function from `(point, factor)` values to them.
    background
        Value of an empty output; 0 by default.
    data
        In the place of grid, targets and background: images of one's own with their factors, as an `ArrayTask`, or the
        file or folder of one (docs/data.md). Combinations that it lacks have no truth and are no memories.
    image_shape
        `(y, x)` or `(channel, y, x)` of an output, where its own shape does not say it.
    title
        Heading of the page.
    labels
        For each of several decoders what it is, by names of what a reader can switch, as
        `{"code": "bump", "depth": "4"}`; more than two runs are labelled by what their specs differ in.
    training
        Whether a panel follows in which a small decoder is trained live, with stripes and without.

    Returns
    -------
    ExplorerPage
        With `html`, `notes` and `save(path)`. A module that cannot be translated for the browser is shown by outputs
        computed beforehand at the grid points, and a note says why.

    Examples
    --------
    >>> import recombine as rc
    >>> from torch import nn
    >>> decoder = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 16))
    >>> page = rc.explore(decoder, "x=0:3,y=0:3", holdout="center:1:2")
    >>> page.notes
    ()
    """
    subjects = subjects_of(
        module, grid=grid, encode=encode, holdout=holdout, targets=targets, background=background, data=data
    )
    content, numbers = page_data(
        subjects, image_shape=image_shape, title=title, labels=labels_of(parts_of(module), labels)
    )
    panels = [training_panel()] if one_of("training", training, (True, False)) else []
    return ExplorerPage(document(content, numbers, panels), notes_of(content))


def page_data(
    subjects: Sequence[Subject],
    *,
    image_shape: tuple[int, ...] | None = None,
    title: str | None = None,
    labels: tuple[list[str], list[list[str]]] | None = None,
) -> tuple[dict[str, Any], bytes]:
    """What an explorer's script reads: JSON, and the bytes that it points into."""
    if title is not None and not isinstance(title, str):
        raise InvalidValue("title", title, "a text")
    if image_shape is not None:
        image_shape = _shape(image_shape)
    names, values = labels or ([], [[] for _ in subjects])
    blobs = Blobs()
    with torch.random.fork_rng(devices=[]):
        models = [page_model(subject, blobs, image_shape) for subject in subjects]
    content = {
        "title": title or "What does this decoder compose?",
        "factors": [_factor(factor, subjects[0].levels.get(factor.name)) for factor in subjects[0].grid.factors],
        "models": [{**model, "labels": own} for model, own in zip(models, values, strict=True)],
        "labels": names, "version": __version__,
    }  # fmt: skip
    return content, bytes(blobs.content)


def notes_of(data: Mapping[str, Any]) -> tuple[str, ...]:
    """What a reader must know of each decoder."""
    return tuple(f"{model['name']}: {note}" for model in data["models"] for note in model["notes"])


def _shape(given: Any) -> tuple[int, ...]:
    try:
        shape = tuple(int(count) for count in given)
    except (TypeError, ValueError):
        shape = ()
    if len(shape) not in (2, 3) or min(shape) < 1:
        raise InvalidValue("image_shape", given, "(y, x) or (channel, y, x)")
    return shape


def _factor(factor: Factor, labels: Sequence[str] | None = None) -> dict[str, Any]:
    return {
        "name": factor.name, "low": factor.low, "high": factor.high, "count": factor.count, "form": factor.form,
        "given": None if factor.given is None else list(factor.given), "period": factor.period,
        "labels": None if labels is None else list(labels),
    }  # fmt: skip
