"""Explorer pages: self-contained HTML files in which a decoder runs while you drag a point through its factors."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from recombine.data import LabelledImages
from recombine.diagnosis.calling import Method
from recombine.diagnosis.subject import Encode, TargetFunction, Trained
from recombine.encodings import Encoding
from recombine.errors import InvalidValue, RecombineError
from recombine.factors import Grid
from recombine.files import require_own, write
from recombine.holdouts import Holdout
from recombine.page.document import document, explorer
from recombine.page.model import Blobs, page_model
from recombine.page.subject import PageDecoder, page_decoders, parts_of
from recombine.page.training import training_panel
from recombine.page.translate import Exported
from recombine.reproduction.explorer import NONE, kept_decoders
from recombine.reproduction.live_decoders import TrainingPanel
from recombine.reproduction.report import Parts
from recombine.reproduction.results import Results
from recombine.specs import RunSpec
from recombine.tasks import ArrayTask
from recombine.version import __version__

FRAME_HEIGHT = 900
"""Height of the frame in a notebook, in pixels."""
FEW = 2
"""Maximum number of decoders that are shown side by side without labels."""


@dataclass(frozen=True)
class ExplorerPage:
    """A self-contained page. Notebooks show it in a frame, or as a widget if anywidget is installed.

    Parameters
    ----------
    html
        The page.
    notes
        Notes shown on the page with each decoder.

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

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the page to a file, which must be new or a page unless `overwrite` is set; return its path."""
        require_own(Path(path), "path", "page", overwrite)
        write(Path(path), self.html.encode(), "out")
        return Path(path)

    def widget(self, height: int = FRAME_HEIGHT) -> Any:
        """Return the page as an `anywidget.AnyWidget`; its settable `address` attribute is the current view."""
        try:
            widget = _widget_class()
        except ImportError:
            message = "anywidget is not installed: pip install anywidget, or save the page and open the file"
            raise RecombineError(message) from None
        return widget(html=self.html, height=height)

    def _repr_mimebundle_(self, **_: Any) -> Any:
        """Return the widget, which notebooks show in place of the frame."""
        try:
            return self.widget()._repr_mimebundle_()
        except RecombineError:
            return {}

    def _repr_html_(self) -> str:
        frame = f'width="100%" height="{FRAME_HEIGHT}" style="border:0" sandbox="allow-scripts"'
        return f'<iframe {frame} srcdoc="{html.escape(self.html)}"></iframe>'

    def __repr__(self) -> str:
        return f"ExplorerPage({len(self.html):,} characters, notes={list(self.notes)})"


def explore(
    module: nn.Module | Trained | Sequence[nn.Module | Trained] | Mapping[str, nn.Module | Trained],
    grid: Grid | None = None,
    *,
    encode: Encode | Encoding | str | None = None,
    holdout: Holdout | Tensor | np.ndarray | str | None = None,
    targets: Tensor | np.ndarray | TargetFunction | None = None,
    background: float | None = None,
    data: ArrayTask | LabelledImages | str | Path | None = None,
    bins: Mapping[str, Any] | str | None = None,
    repeats: Literal["mean", "keep"] | None = None,
    output: str | int | None = None,
    call: Method | None = None,
    kwargs: Mapping[str, Any] | None = None,
    image_shape: tuple[int, ...] | None = None,
    title: str | None = None,
    labels: Sequence[Mapping[str, str]] | None = None,
    training: bool = False,
) -> ExplorerPage:
    """Create a page on which a decoder runs live while you move through its factors.

    Parameters
    ----------
    module
        A module that maps encoded factor values to outputs, a stored run, or the checkpoint of a run
        (`ModelConfig.from_pretrained(folder)`). Several decoders, in a sequence or by name, can be compared side by
        side. Modules are copied, not modified.
    grid
        Factors and their values: a string such as `x=0:27,y=0:27`, or values by name, such as `{"x": range(28)}`.
        Omitted for runs, whose specs include the grid.
    encode
        An encoding or its name, or a function from `(point, factor)` values to inputs, which may use NumPy instead of
        torch. Default: raw factor values, also called `raw`.
    holdout
        Combinations held out of training: a hold-out or its name, conditions such as `x>=8,y>=8`, or a boolean mask
        over the grid.
    targets
        True outputs, one row per grid point, or a function from `(point, factor)` values to true outputs.
    background
        Value of a blank output. Default: 0; without targets, the median of the module's outputs.
    data
        Images with their factors, as an `ArrayTask`, a file or a folder (docs/data.md); replaces `grid`, `targets` and
        `background`. Missing combinations have no true output and are never among the nearest training images.
    bins
        How to bin the factors of a file, such as `{"x": 10}` (docs/data.md).
    repeats
        Whether a file may have several images of a combination; their mean is the true output.
    output
        Which of several returned tensors is the output, as for `diagnose`: a key, an index or an attribute.
    call
        The method to call, such as `decode`, or a function of the module and its inputs. Default: `forward`.
    kwargs
        Other arguments of the method.
    image_shape
        Shape `(y, x)` or `(channel, y, x)` of an output, if it cannot be inferred.
    title
        Heading of the page.
    labels
        Labels by which the reader can select each of several decoders, e.g. `{"code": "bump", "depth": "4"}`. By
        default, more than two runs are labelled by the differences between their specs.
    training
        Whether to add a panel that trains a small decoder live, with and without isolated-factor examples.

    Returns
    -------
    ExplorerPage
        The page, with `html`, `notes` and `save(path)`. If a module cannot be translated for the browser, the page
        shows precomputed outputs at the grid points, and a note explains why.

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
        module, grid=grid, encode=encode, holdout=holdout, targets=targets, background=background, data=data, bins=bins,
        repeats=repeats, output=output, call=call, kwargs=kwargs,
    )  # fmt: skip
    content, numbers = page_data(subjects, labels_of(parts_of(module), labels), title, image_shape)
    panels = [training_panel(_installed_panel())] if training else []
    notes = tuple(f"{model['name']}: {note}" for model in content["models"] for note in model["notes"])
    return ExplorerPage(document(content, numbers, panels), notes)


def _installed_panel() -> TrainingPanel:
    from recombine.reproduction.installed import PAPER  # imported lazily, since it imports all studies

    if PAPER.training_panel is None:
        raise InvalidValue("training", True, f"False: the paper {PAPER.name} has no training panel")
    return PAPER.training_panel


def report_explorer(results: Results) -> Parts:
    """Return an explorer for the decoders in a results folder, to be used as the report's `question` panel."""
    decoders = kept_decoders(results)
    subjects = page_decoders({decoder.name: decoder for decoder in decoders})
    labels = labels_of(decoders, [decoder.labels for decoder in decoders])
    return explorer(*page_data(subjects, labels, "Drag the point into the hold-out"))


def page_data(
    subjects: Sequence[PageDecoder],
    labels: tuple[list[str], list[list[str]]],
    title: str | None,
    image_shape: tuple[int, ...] | None = None,
) -> tuple[dict[str, Any], bytes]:
    """Return an explorer's data: content for JSON, and the bytes to which it refers."""
    names, values = labels
    blobs, exports = Blobs(), dict[Any, Exported]()
    with torch.random.fork_rng(devices=[]):
        models = [page_model(subject, blobs, image_shape, exports) for subject in subjects]
    content = {
        "title": title or "Does this decoder generalize to unseen combinations?",
        "factors": [
            {**asdict(factor), "labels": subjects[0].levels.get(factor.name)} for factor in subjects[0].grid.factors
        ],
        "models": [{**model, "labels": own} for model, own in zip(models, values, strict=True)],
        "start": _start(subjects[0]), "labels": names, "version": __version__,
    }  # fmt: skip
    return content, bytes(blobs.content)


def _start(subject: PageDecoder) -> list[int]:
    """Return the positions of the held-out combination nearest to the middle of all, or else the grid's middle."""
    held_out = torch.nonzero(subject.held_out.reshape(subject.grid.shape))
    if not len(held_out):
        return [(count - 1) // 2 for count in subject.grid.shape]
    distances = (held_out - held_out.double().mean(0)).square().sum(1)
    return list(map(int, held_out[distances.argmin()]))


def labels_of(decoders: Sequence[Any], given: Sequence[Mapping[str, str]] | None) -> tuple[list[str], list[list[str]]]:
    """Return the names of labels that differ and each decoder's values; both are empty if decoder names suffice."""
    if given is None:
        if len(decoders) <= FEW or not all(isinstance(decoder, Trained) for decoder in decoders):
            return [], [[] for _ in decoders]
        given = [spec_labels(decoder.spec) for decoder in decoders]
    if len(given) != len(decoders) or any(list(own) != list(given[0]) for own in given):
        raise InvalidValue("labels", given, f"one dictionary for each of {len(decoders)} decoders, with the same keys")
    names = [name for name in given[0] if len({own[name] for own in given}) > 1]
    values = [[own[name] for name in names] for own in given]
    if len({tuple(own) for own in values}) < len(values):
        counts = [values[: k + 1].count(own) for k, own in enumerate(values)]
        names, values = [*names, "number"], [[*own, str(count)] for own, count in zip(values, counts, strict=True)]
    return names, values


def spec_labels(spec: RunSpec) -> dict[str, str]:
    """Return labels for a run."""
    task, decoder = spec.task, spec.decoder.model_dump()
    data = str(getattr(task, "training", NONE)) + (" and isolated factors" if task.isolated else "")
    return {
        "code": str(getattr(task.encoding, "kind", task.encoding)),
        "decoder": str(decoder["kind"]), "depth": str(decoder.get("depth", NONE)),
        "width": str(decoder.get("width", NONE)), "data": data,
        "penalties": " and ".join(penalty.kind for penalty in spec.penalties) or "none",
        "hold-out": str(getattr(task, "holdout", NONE)), "seed": str(spec.seed),
    }  # fmt: skip


@cache
def _widget_class() -> Any:
    import anywidget
    import traitlets

    class ExplorerWidget(anywidget.AnyWidget):
        """A page in a frame; the settable `address` is the current view, e.g. `#at=13,13&stage=1`."""

        _esm = (files("recombine.page") / "widget.js").read_text(encoding="utf-8")
        html = traitlets.Unicode().tag(sync=True)
        height = traitlets.Int().tag(sync=True)
        address = traitlets.Unicode("").tag(sync=True)

    return ExplorerWidget
