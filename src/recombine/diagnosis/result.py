"""The result of a diagnosis: a labelled Dataset with a summary, where *kept* combinations are those not held out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import numpy as np
import xarray

from recombine.console import aligned
from recombine.diagnosis.outcome import FAILS, MOST, PARTING, PARTLY, RULE, outcome, parting_stage
from recombine.metrics.registry import STAGE_METRICS
from recombine.metrics.sampling import SUFFIX
from recombine.metrics.stages import metric_method
from recombine.version import PAPERS

OUTPUT_SCORES = (
    "id_error", "ood_error", "id_over_mean", "ood_over_mean", "id_accuracy", "ood_accuracy", "id_factor_accuracy",
    "ood_factor_accuracy", "kernel_agreement", "kernel_p", "superposition",
)  # fmt: skip
"""Output scores shown in the summary."""
MARKER_AUROC = "marker_auroc.json"
"""Name of the file with AUROCs and advice within a paper's package."""
RECORD = "telling"
"""Attribute that stores AUROCs and advice (see `packaged`) as JSON; stored results depend on this name."""
AUROC_MEANING = (
    "AUROC: how well the metric separates networks that generalize to unseen combinations (compose) from those that do "
    "not, on architectures not used for its selection (0.5: chance, 1: perfect); ↑ / ↓: composing networks have higher "
    "/ lower values; fall: the decrease along the stages is used"
)
OTHER_NAMES = frozenset({"stage", "factor", "other_factor", "kernel", "prediction", "held_out", "error"})


def reserved_names() -> frozenset[str]:
    """Return the names of a diagnosis' variables and dimensions, which are not allowed as factor names."""
    columns = STAGE_METRICS.columns()
    dims = {dim for column in columns.values() for dim in column.dims} - {"point"}
    errors = {f"{name}{SUFFIX}" for name in (*OUTPUT_SCORES, *columns)}
    return OTHER_NAMES | {*OUTPUT_SCORES, *columns} | dims | errors


class Diagnosis(xarray.Dataset):
    """A Dataset of measurements, with a summary for the terminal.

    Parameters
    ----------
    data_vars
        The measurements.
    coords
        Stages, factors and factor values.
    attrs
        How the metrics were computed, and notes.

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
        """Notes on how examples were batched, which submodules were left out, and what was sampled."""
        return str(self.attrs.get("notes", "")).splitlines()

    @property
    def left_out(self) -> dict[str, str]:
        """Selected metrics that could not be measured, each with the requirement that was not met."""
        return dict(json.loads(self.attrs.get("left_out", "{}")))

    def draw(
        self, plane: Sequence[str] | None = None, at: Mapping[str, float] | None = None, column: str = "volume"
    ) -> Any:
        """Return a matplotlib figure with a map of every stage on a plane through the grid.

        Parameters
        ----------
        plane
            Names of the factors along x and y. Default: the first two.
        at
            Values of other factors, e.g. `{"shape": 0}`. Factors without a value are averaged out.
        column
            A variable with one value per stage and grid point; `volume` is shown on a logarithmic scale.
        """
        from recombine.diagnosis.drawing import plane_figure

        return plane_figure(self, column, plane, at)

    @property
    def marker_auroc(self) -> dict[str, Any]:
        """AUROCs of the metrics as predictors of composition, with advice (see `packaged`); empty if not installed."""
        return dict(json.loads(self.attrs.get(RECORD, "{}")))

    def with_marker_auroc(self) -> Self:
        """Return the result with its variables' AUROCs and the advice (see `packaged`) added to its attributes."""
        known = packaged()
        names = {f"{name}{case}" for name in self.data_vars for case in self._cases(str(name))}
        scores = {name: score for name, score in known.get("numbers", {}).items() if name in names}
        if not known:
            return self
        result = self.assign_attrs({RECORD: json.dumps({**known, "numbers": scores})})
        for name, score in scores.items():
            if name in result:
                higher = "composing networks" if score["higher"] else "failing networks"
                result[name].attrs.update(
                    auroc=score["auroc"], auroc_low=score["low"], auroc_high=score["high"],
                    auroc_meaning=f"{higher} have higher values, most clearly at: {score['position']}",
                )  # fmt: skip
        return result

    def _cases(self, name: str) -> list[str]:
        """Return the suffixes that identify a score's values in summaries: its labels, or "" for a single number."""
        dims = self[name].dims
        return [f" {case}" for case in self[dims[0]].values] if name in OUTPUT_SCORES and dims else [""]

    @property
    def advice(self) -> list[str]:
        """Remedies that made networks compose on the paper's task, if this module fits but does not compose."""
        remedies = self.marker_auroc.get("advice", [])
        if not remedies or self.outcome not in (PARTLY, FAILS):
            return []
        kept, right = float(self["id_accuracy"]), float(self["ood_accuracy"])
        if right >= MOST * kept:
            return ["advice: held-out outputs are right as often as kept ones, but less exact; try training for longer"]
        first = f"advice: {kept:.0%} of kept but only {right:.0%} of held-out outputs are right; try"
        return [f"{first} (with your own --data or task, --decoder and --holdout):", *remedies]

    @property
    def outcome(self) -> str:
        """Whether the module generalizes to held-out combinations (see `diagnosis.outcome`); empty if not measured."""
        return outcome({name: float(self[name]) for name in OUTPUT_SCORES if name in self and not self[name].dims})

    @property
    def breaks_at(self) -> str | None:
        """The first stage at which held-out points part from kept ones by more than in networks that compose."""
        found = parting_stage(self["stage"].values, self["step_change"].values) if "step_change" in self else None
        return None if found is None else found[0]

    def _outcome_lines(self) -> list[str]:
        """Return the outcome with its numbers and rule, and the stage at which held-out points part from kept ones."""
        lines = []
        if self.outcome:
            kept_right, right = (float(self[name]) for name in ("id_accuracy", "ood_accuracy"))
            by_factor = self["ood_factor_accuracy"].to_series()
            factors = ", ".join(f"{name} {share:.0%}" for name, share in by_factor.items())
            kept, held_out = (float(self[name]) for name in ("id_over_mean", "ood_over_mean"))
            times = f", {held_out / kept:.2g} times as large" if kept > 0 else ""
            lines += [
                f"outcome: {self.outcome}: {kept_right:.1%} of kept and {right:.1%} of held-out outputs are right "
                f"({factors}); errors are {kept:.2g} and {held_out:.2g} of the mean target's{times}",
                f"{RULE}. Right: the nearest target of the grid is the output's own",
            ]  # fmt: skip
        if "step_change" in self:
            changes, most = self["step_change"].values, f"at most {PARTING:g} in networks that compose"
            found = parting_stage(self["stage"].values, changes)
            if found is None:
                lines.append(f"where: no stage stands out (largest step change {np.nanmax([0, *changes]):.2g}, {most})")
            else:
                stage, change = found
                parting = f"from stage {stage} on, held-out points part from kept ones"
                lines.append(f"where: {parting} (step change {change:.2g}, {most})")
        return lines

    def summary_table(self) -> dict[str, list[str]]:
        """Return the cells of the summary by column: one per stage, plus one for the AUROC if any is shown."""
        cells, scores = {"stage": [str(name) for name in self["stage"].values]}, dict[str, str]()
        record = self.marker_auroc
        for column in STAGE_METRICS.columns().values():
            if column.heading and column.name in self:
                inner = [dim for dim in self[column.name].dims if dim != "stage"]
                cells[column.heading] = self._cells(column.name, column.form, column.form, inner)
                scores[column.heading] = _auroc(record, column.name)
        if any(scores.values()):
            cells["stage"].append("AUROC")
            for heading, score in scores.items():
                cells[heading].append(score or "–")
        return cells

    def summary_lines(self) -> list[str]:
        """Return the lines below the table: output scores, hold-out, method, outcome, AUROCs, advice, and notes."""
        lines, record = self._outcome_lines(), self.marker_auroc  # the answer first
        for name in OUTPUT_SCORES:
            if name in self:
                for case, text in zip(self._cases(name), self._cells(name, ".3g", ".2g"), strict=True):
                    score = _auroc(record, f"{name}{case}")
                    lines.append(f"{name}{case}: {text}" + (f" (AUROC {score})" if score else ""))
        lines += [f"hold-out: {self.attrs['holdout']}"] if "holdout" in self.attrs else []
        method = metric_method(self.attrs)
        lines += [f"metric: {method}"] if method else []
        shown = any(_auroc(record, name) for name in record.get("numbers", {}))
        lines += [AUROC_MEANING, f"AUROCs come from {record['networks']}"] if shown else []
        return [*lines, *self.advice, *(f"note: {note}" for note in self.notes)]

    def _cells(self, name: str, form: str, error_form: str, averaged: Sequence[Any] = ()) -> list[str]:
        """Return a variable's values as strings, with the half-widths of 95 % intervals if the grid was sampled."""
        texts = ["–" if np.isnan(own) else f"{own:{form}}" for own in np.atleast_1d(self[name].mean(averaged).values)]
        if f"{name}{SUFFIX}" not in self:
            return texts
        standard = self[f"{name}{SUFFIX}"]
        # for a mean across factors, the mean half-width is an upper bound
        widths = np.atleast_1d(standard.mean(averaged).values) * standard.attrs["quantile"]
        both = zip(texts, widths, strict=True)
        return [text if np.isnan(width) else f"{text} ± {width:{error_form}}" for text, width in both]

    def summary(self) -> str:
        """Return a table with one line per stage, followed by `summary_lines`."""
        return "\n".join([*aligned(self.summary_table()), *self.summary_lines()])


@cache
def packaged() -> dict[str, Any]:
    """Return the AUROCs and advice of an installed paper, as written by `recombine report FOLDER --marker-auroc FILE`.

    For each variable (with its case, e.g. `superposition memorised`), `numbers` contains the `auroc`, the limits of its
    95 % interval (`low`, `high`), whether composing networks have `higher` values, the `position` where the difference
    is clearest, and whether the decrease along the stages is used (`fall`); `networks` describes the networks.
    """
    for entry in entry_points(group=PAPERS):
        module = find_spec(entry.module)  # imports only the parent package, not the paper
        for folder in (module.submodule_search_locations or []) if module else []:
            path = Path(folder, MARKER_AUROC)
            if path.is_file():
                return dict(json.loads(path.read_text(encoding="utf-8")))
    return {}


def _auroc(record: Mapping[str, Any], name: str) -> str:
    """Return an AUROC with its direction, e.g. `0.62 ↓`; empty if it is unknown or not above chance."""
    score = record.get("numbers", {}).get(name)
    if score is None or score["auroc"] <= 0.5:
        return ""
    return f"{score['auroc']:.2f} {'fall ' if score['fall'] else ''}{'↑' if score['higher'] else '↓'}"
