"""Explorer pages: anyone's decoder in one HTML file, where one drags the point into the hold-out."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from recombine.data import LabelledImages
from recombine.diagnosis.subject import TargetFunction, Trained
from recombine.encodings import Encoding
from recombine.errors import InvalidValue, RecombineError
from recombine.factors import FactorGrid
from recombine.files import write
from recombine.holdouts import Holdout
from recombine.metrics.stages import Encode
from recombine.page.document import document, explorer
from recombine.page.model import Blobs, page_model
from recombine.page.subject import PageDecoder, page_decoders, parts_of
from recombine.page.training import training_panel
from recombine.reproduction.explorer import NONE, TrainingPanel, kept_decoders
from recombine.reproduction.report import Parts
from recombine.reproduction.results import Results
from recombine.specs import PENALTIES, RunSpec
from recombine.store import Run
from recombine.tasks import ArrayTask
from recombine.version import __version__

FRAME_HEIGHT = 900
"""Of the frame in a notebook, in pixels."""
FEW = 2
"""Decoders that need no labels: both are shown."""


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

    def save(self, path: str | Path) -> Path:
        """Write the page to a file."""
        write(Path(path), self.html.encode(), "out")
        return Path(path)

    def widget(self, height: int = FRAME_HEIGHT) -> Any:
        """The page as an `anywidget.AnyWidget` of this height in pixels; its `address` is the view, and may be set."""
        try:
            widget = _widget_class()
        except ImportError:
            message = "anywidget is not installed: pip install anywidget, or save the page and open the file"
            raise RecombineError(message) from None
        return widget(html=self.html, height=height)

    def _ipython_display_(self) -> None:
        from IPython.display import display

        try:
            display(self.widget())
        except RecombineError:
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
        Add a panel that trains a small decoder live, with isolated factors and without.

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
    subjects = page_decoders(
        module, grid=grid, encode=encode, holdout=holdout, targets=targets, background=background, data=data
    )
    content, numbers = page_data(subjects, labels_of(parts_of(module), labels), title, image_shape)
    panels = [training_panel(_installed_panel())] if training else []
    notes = tuple(f"{model['name']}: {note}" for model in content["models"] for note in model["notes"])
    return ExplorerPage(document(content, numbers, panels), notes)


def _installed_panel() -> TrainingPanel:
    from recombine.reproduction.installed import PAPER  # which imports all of its studies

    if PAPER.training_panel is None:
        raise InvalidValue("training", True, f"False: the paper {PAPER.name} has no training panel")
    return PAPER.training_panel


def report_explorer(results: Results) -> Parts:
    """Parts of a page on which the decoders of a results folder run: a report's panel `question`."""
    decoders = kept_decoders(results)
    subjects = page_decoders({own.name: own for own in decoders})
    labels = labels_of(decoders, [own.labels for own in decoders])
    return explorer(*page_data(subjects, labels, "Drag the point into the hold-out"))


def page_data(
    subjects: Sequence[PageDecoder],
    labels: tuple[list[str], list[list[str]]],
    title: str | None,
    image_shape: tuple[int, ...] | None = None,
) -> tuple[dict[str, Any], bytes]:
    """What an explorer's script reads: JSON, and the bytes that it points into."""
    names, values = labels
    blobs = Blobs()
    with torch.random.fork_rng(devices=[]):
        models = [page_model(subject, blobs, image_shape) for subject in subjects]
    content = {
        "title": title or "What does this decoder compose?",
        "factors": [
            {**asdict(factor), "labels": subjects[0].levels.get(factor.name)} for factor in subjects[0].grid.factors
        ],
        "models": [{**model, "labels": own} for model, own in zip(models, values, strict=True)],
        "labels": names, "version": __version__,
    }  # fmt: skip
    return content, bytes(blobs.content)


def labels_of(decoders: Sequence[Any], given: Sequence[Mapping[str, str]] | None) -> tuple[list[str], list[list[str]]]:
    """Names of labels that differ, given or of runs' specs, and each decoder's values; none where names are enough."""
    if given is None:
        trained = [own for own in decoders if isinstance(own, Trained)]
        if len(decoders) <= FEW or len(trained) < len(decoders):
            return [], [[] for _ in decoders]
        given = [spec_labels(own.spec) for own in trained]
    if len(given) != len(decoders) or any(list(own) != list(given[0]) for own in given):
        raise InvalidValue("labels", given, f"a dictionary for each of {len(decoders)} decoders, with the same names")
    names = [name for name in given[0] if len({own[name] for own in given}) > 1]
    values = [[own[name] for name in names] for own in given]
    if len({tuple(own) for own in values}) < len(values):
        alike = [values[: k + 1].count(own) for k, own in enumerate(values)]
        names, values = [*names, "of these"], [[*own, str(count)] for own, count in zip(values, alike, strict=True)]
    return names, values


def spec_labels(spec: RunSpec) -> dict[str, str]:
    """What a run is, by names that a reader can switch."""
    task, recipe = spec.task, spec.recipe
    decoder = spec.decoder.model_dump()
    data = str(getattr(task, "training", NONE)) + (" and isolated factors" if task.isolated else "")
    return {
        "code": str(getattr(task.encoding, "kind", task.encoding)),
        "decoder": str(decoder["kind"]), "depth": str(decoder.get("depth", NONE)),
        "width": str(decoder.get("width", NONE)), "data": data,
        "penalties": " and ".join(name for name in PENALTIES if getattr(recipe, name)) or "none",
        "hold-out": str(getattr(task, "holdout", NONE)), "seed": str(spec.seed),
    }  # fmt: skip


@cache
def _widget_class() -> Any:
    import anywidget
    import traitlets

    class ExplorerWidget(anywidget.AnyWidget):
        """A page in a frame; `address` is the present view, as `#at=13,13&stage=1`, and may be set."""

        _esm = (files("recombine.page") / "widget.js").read_text(encoding="utf-8")
        html = traitlets.Unicode().tag(sync=True)
        height = traitlets.Int().tag(sync=True)
        address = traitlets.Unicode("").tag(sync=True)

    return ExplorerWidget
