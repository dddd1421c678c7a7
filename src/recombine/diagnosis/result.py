"""The result of a diagnosis: one labelled Dataset."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from torch import Tensor

from recombine.diagnosis.derivatives import Geometry
from recombine.diagnosis.sampling import SUFFIX
from recombine.factors import FactorGrid
from recombine.holdouts import HoldoutSummary
from recombine.metrics.registry import STAGE_METRICS, Need, StageProfile
from recombine.version import PAPERS

OUTPUT_SCORES = (
    "id_error", "ood_error", "id_over_mean", "ood_over_mean", "kernel_agreement", "kernel_p", "superposition",
)  # fmt: skip
"""Scores of the outputs that the summary shows."""
FAILING = 0.5
"""Error over that of the mean kept target from which on outputs count as wrong."""
DOES_NOT_COMPOSE = "advice: the kept targets are learnt, the held-out error is large"
SAMPLED = "points"
"""Attribute of a result whose grid was sampled: of how many points."""
MARKER_AUROC = "marker_auroc.json"
"""File in a paper's package with AUROCs."""
TELLING = "telling"
"""Attribute that holds the record of AUROCs (`packaged`), as JSON."""
AUROC_MEANING = (
    "AUROC: how well the number has told composing from failing networks of architectures that it was not chosen on "
    "(0.5: not at all, 1: always); ↑ composing networks have more of it, ↓ less; fall: of its fall along the stages"
)
OTHER_NAMES = frozenset({"stage", "factor", "other_factor", "kernel", "prediction", "held_out", "error"})


def reserved_names() -> frozenset[str]:
    """Names of variables and dimensions in a diagnosis, which a factor cannot have."""
    own = {name for column in STAGE_METRICS.columns() for name in (column.name, *column.dims)} - {"point"}
    errors = {f"{name}{SUFFIX}" for name in (*OUTPUT_SCORES, *(column.name for column in STAGE_METRICS.columns()))}
    return OTHER_NAMES | {*OUTPUT_SCORES} | own | errors


class Diagnosis(xarray.Dataset):
    """A Dataset with a summary for a terminal, and what must be known to read its numbers.

    Parameters
    ----------
    data_vars
        Measurements; as of any Dataset.
    coords
        Stages, factors and their values.
    attrs
        How it was measured, and notes.

    Examples
    --------
    >>> import recombine as rc
    >>> from torch import nn
    >>> result = rc.diagnose(nn.Linear(2, 4), "x=0:3,y=0:3", holdout="center:1:2")
    >>> isinstance(result, rc.Diagnosis), result.notes
    (True, [])
    >>> "factorization" in result.summary()
    True
    """

    __slots__ = ()

    @property
    def notes(self) -> list[str]:
        """What was done to the module's rows, and which parts were left out."""
        return str(self.attrs.get("notes", "")).splitlines()

    @property
    def left_out(self) -> dict[str, str]:
        """Metrics that are not here, each with what it needs and this module, or its grid, does not have."""
        return dict(json.loads(self.attrs.get("left_out", "{}")))

    def draw(
        self, plane: Sequence[str] | None = None, at: Mapping[str, float] | None = None, column: str = "volume"
    ) -> Any:
        """A map of every stage over a plane through the grid.

        Parameters
        ----------
        plane
            Two factors by name, along x and along y; the first two by default.
        at
            Values of other factors, as `{"shape": 0}`; factors that are left out are averaged.
        column
            A variable with a number per grid point; of `volume` the logarithm is drawn.

        Returns
        -------
        matplotlib.figure.Figure
            One panel per stage.
        """
        from recombine.diagnosis.drawing import plane_figure

        return plane_figure(self, column, plane, at)

    @property
    def marker_auroc(self) -> dict[str, Any]:
        """AUROCs of the numbers as markers of composing networks (`packaged`); empty where they are not known."""
        return dict(json.loads(self.attrs.get(TELLING, "{}")))

    @property
    def advice(self) -> list[str]:
        """What composed on the paper's task, for a module that learnt the kept targets and fails on held-out ones."""
        tried = self.marker_auroc.get("advice", [])
        kept, held_out = self._errors_over_mean
        if not tried or not kept < FAILING <= held_out:
            return []
        return [f"{DOES_NOT_COMPOSE}, {held_out:.2g} times that of the mean kept target; to try:", *tried]

    @property
    def outcome(self) -> str:
        """Whether the module composes, in a sentence; empty without targets and a hold-out."""
        kept, held_out = self._errors_over_mean
        if np.isnan(kept + held_out):
            return ""
        if not kept < FAILING:
            return f"not learnt: the error of kept targets is {kept:.2g} times that of their mean"
        return "does not compose" if held_out >= FAILING else f"composes: held-out error {held_out:.2g} of the mean's"

    @property
    def _errors_over_mean(self) -> tuple[float, float]:
        """Errors of kept and held-out targets, over that of the mean kept target."""
        kept, held_out = (float(self[own]) if own in self else np.nan for own in ("id_over_mean", "ood_over_mean"))
        return kept, held_out

    def summary_table(self) -> dict[str, list[str]]:
        """Headings, each with one cell per stage; where AUROCs are known, one more row with them."""
        cells, scores = {"stage": [str(name) for name in self["stage"].values]}, dict[str, str]()
        record = self.marker_auroc
        for column in STAGE_METRICS.columns():
            if column.heading and column.name in self:
                inner = [dim for dim in self[column.name].dims if dim != "stage"]
                cells[column.heading] = self._cells(column.name, column.form, column.form, inner)
                scores[column.heading] = _short(record, column.name)
        if any(scores.values()):
            cells["stage"].append("AUROC")
            for heading, score in scores.items():
                cells[heading].append(score or "–")
        return cells

    def summary_lines(self) -> list[str]:
        """Scores of the outputs, what was held out, how the metric was computed, AUROCs, and notes."""
        lines, record = [], self.marker_auroc
        for name in OUTPUT_SCORES:
            if name in self:
                scores = self[name]
                cases = [""] if scores.ndim == 0 else [f" {case}" for case in scores[scores.dims[0]].values]
                for case, text in zip(cases, self._cells(name, ".3g", ".2g"), strict=True):
                    score = _short(record, f"{name}{case}")
                    lines.append(f"{name}{case}: {text}" + (f" (AUROC {score})" if score else ""))
        lines += [f"hold-out: {self.attrs['holdout']}"] if "holdout" in self.attrs else []
        method = metric_method(self)
        lines += [f"metric: {method}"] if method else []
        lines += [f"outcome: {self.outcome}"] if self.outcome else []
        lines += [AUROC_MEANING, f"AUROCs come from {record['networks']}"] if record else []
        return [*lines, *self.advice, *(f"note: {note}" for note in self.notes)]

    def _cells(self, name: str, form: str, error_form: str, averaged: Sequence[Any] = ()) -> list[str]:
        """Numbers of a variable, where it is sampled with half-widths of their 95 % intervals.

        Of a mean over factors the mean half-width, which its own does not exceed.
        """
        texts = ["–" if np.isnan(own) else f"{own:{form}}" for own in np.atleast_1d(self[name].mean(averaged).values)]
        if f"{name}{SUFFIX}" not in self:
            return texts
        errors = self[f"{name}{SUFFIX}"]
        widths = np.atleast_1d(errors.mean(averaged).values) * errors.attrs["quantile"]
        both = zip(texts, widths, strict=True)
        return [text if np.isnan(width) else f"{text} ± {width:{error_form}}" for text, width in both]

    def summary(self) -> str:
        """One line per stage, then scores of the outputs, how the metric was computed, and notes."""
        columns = self.summary_table()
        widths = {name: max(len(name), *map(len, cells)) for name, cells in columns.items()}
        lines = ["  ".join(f"{name:>{width}}" for name, width in widths.items())]
        for row in zip(*columns.values(), strict=True):
            lines.append("  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths.values(), strict=True)))
        return "\n".join([*lines, *self.summary_lines()])


def metric_method(result: xarray.Dataset) -> str:
    """How the metric tensor was computed, and why not exactly."""
    return ", ".join(filter(None, (result.attrs.get("metric"), result.attrs.get("metric_reason"))))


def dataset(
    profile: StageProfile,
    output_scores: dict[str, Any],
    grid: FactorGrid,
    mask: Tensor,
    geometry: Geometry,
    notes: list[str],
    points: int | None = None,
    holdout: HoldoutSummary | None = None,
) -> Diagnosis:
    """The labelled Dataset; variables that depend on the metric tensor say how it was computed.

    `points` says of how many points of a larger grid, and `holdout` what is held out of all of it.
    """
    columns = {column.name: column for column in STAGE_METRICS.columns()}
    method = {"metric": geometry.method, "metric_reason": geometry.reason}
    of_the_metric = {
        column.name
        for metric in STAGE_METRICS.values() if Need.METRIC in metric.needs
        for column in metric.columns
    }  # fmt: skip
    record = packaged()
    known_scores = record.get("numbers", {})
    scores = {n: known_scores[n] for n in (*profile.columns, *_cases(output_scores)) if n in known_scores}
    record = {**record, "numbers": scores} if scores else {}
    variables = {}
    for name, values in profile.columns.items():
        dims, stacked = ("stage", *columns[name].dims), np.stack([value.cpu().numpy() for value in values])
        if "point" in dims:  # one axis per factor instead
            at = dims.index("point")
            dims = (*dims[:at], *grid.names, *dims[at + 1 :])
            stacked = stacked.reshape(*stacked.shape[:at], *grid.shape, *stacked.shape[at + 1 :])
        attributes = {"description": columns[name].description} | (method if name in of_the_metric else {})
        variables[name] = (dims, stacked, attributes | _auroc_attributes(record, name))
    names = grid.names
    coords = {factor.name: factor.values.numpy() for factor in grid.factors}
    labels = {"stage": profile.stages, "factor": list(names), "other_factor": list(names), **coords}
    data = {**variables, **output_scores, "held_out": (names, mask.reshape(grid.shape).numpy())}
    known = {TELLING: json.dumps(record)} if record else {}
    summary = holdout or HoldoutSummary.of(mask, grid)
    known |= {"holdout": str(summary)} if summary.held_out else {}
    more: dict[str, Any] = {"left_out": json.dumps(profile.left_out)} if profile.left_out else {}
    more |= {} if points is None else {SAMPLED: points}
    return Diagnosis(data, coords=labels, attrs={**method, "notes": "\n".join(notes), **known, **more})


def _cases(output_scores: dict[str, Any]) -> list[str]:
    """Names of the scores of the outputs, each with its case where it has some."""
    names = []
    for name in OUTPUT_SCORES:
        if name in output_scores:
            dims = output_scores[name][0]
            cases = output_scores[dims][1] if isinstance(dims, str) else [""]
            names += [f"{name} {case}".strip() for case in cases]
    return names


# -- AUROCs of numbers -------------------------------------------------------------------------------------------------


@cache
def packaged() -> dict[str, Any]:
    """The AUROCs that an installed paper comes with, as `recombine report FOLDER --marker-auroc FILE` writes them.

    By name in a diagnosis (with its case, as `superposition memorised`), `auroc` with the ends of its 95 % interval,
    whether composing networks have the `higher` numbers, and the `position` where that shows best; `fall` is true where
    that is the number's fall from first hidden stage to output.
    """
    for entry in entry_points(group=PAPERS):
        found = find_spec(entry.module)  # imports the package above it only, not the paper
        for folder in (found.submodule_search_locations or []) if found else []:
            path = Path(folder, MARKER_AUROC)
            if path.is_file():
                return dict(json.loads(path.read_text(encoding="utf-8")))
    return {}


def _auroc_attributes(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Attributes of a variable: its AUROC with interval, and which networks have the higher numbers and where."""
    score = record.get("numbers", {}).get(name)
    if score is None:
        return {}
    more = "composing networks" if score["higher"] else "failing networks"
    return {
        "auroc": score["auroc"], "auroc_low": score["low"], "auroc_high": score["high"],
        "auroc_meaning": f"{more} have the higher numbers, most plainly at: {score['position']}",
    }  # fmt: skip


def _short(record: Mapping[str, Any], name: str) -> str:
    """An AUROC and its direction, as `0.62 ↓`; empty for a number that has none."""
    score = record.get("numbers", {}).get(name)
    if score is None:
        return ""
    return f"{score['auroc']:.2f} {'fall ' if score['fall'] else ''}{'↑' if score['higher'] else '↓'}"
