"""The result of a diagnosis: one labelled Dataset."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray
from torch import Tensor

from recombine.factors import FactorGrid

RESERVED = frozenset(
    {
        "stage", "factor", "other_factor", "mode", "kernel", "prediction", "held_out", "metric", "volume", "features",
        "factorization", "factorization_mean", "factorization_of_means", "stripe_index",
        "localisation_index", "schmidt",
        "probe_in_sample", "probe_held_out", "error", "id_error", "ood_error", "kernel_agreement", "kernel_p",
        "superposition", "effective_rank",
    }
)  # fmt: skip
"""Names in a diagnosis that a factor cannot have."""

OF_THE_METRIC = frozenset({"metric", "volume", "factorization", "factorization_mean", "factorization_of_means"})
"""Variables that depend on how the metric tensor was computed."""


class Diagnosis(xarray.Dataset):
    """A Dataset with a summary for a terminal, and what must be known to read its numbers."""

    __slots__ = ()

    @property
    def notes(self) -> list[str]:
        """What was done to the module's rows, and which parts were left out."""
        return str(self.attrs.get("notes", "")).splitlines()

    def summary_table(self) -> dict[str, list[str]]:
        """Headings, each with a cell per stage."""
        volume = self["volume"]
        depth = xarray.apply_ufunc(np.log10, volume.where(volume > 0))
        columns = {
            "stage": [str(name) for name in self["stage"].values],
            "features": [f"{value:d}" for value in self["features"].values],
            **({"factorization": _numbers(self["factorization_mean"])} if "factorization_mean" in self else {}),
            "log10 volume": _numbers(depth.mean(_grid_axes(self))),
            "its spread": _numbers(depth.std(_grid_axes(self))),
            "probe R² (in sample)": _numbers(self["probe_in_sample"].mean("factor")),
        }
        if "probe_held_out" in self:
            columns["probe R² (held out)"] = _numbers(self["probe_held_out"].mean("factor"))
        columns["effective rank"] = _numbers(self["effective_rank"], ".1f")
        columns |= {"stripe": _numbers(self["stripe_index"]), "localisation": _numbers(self["localisation_index"])}
        return columns

    def summary_lines(self) -> list[str]:
        """Scores of the outputs, how the metric was computed, and notes."""
        lines = []
        for name in ("id_error", "ood_error", "kernel_agreement", "kernel_p", "superposition"):
            if name in self:
                scores = self[name]
                cases = [""] if scores.ndim == 0 else [f" {case}" for case in scores[scores.dims[0]].values]
                texts = _numbers(scores, ".3g")
                lines += [f"{name}{case}: {text}" for case, text in zip(cases, texts, strict=True)]
        method = ", ".join(filter(None, (self.attrs.get("metric"), self.attrs.get("metric_reason"))))
        lines += [f"metric: {method}"] if method else []
        return [*lines, *(f"note: {note}" for note in self.notes)]

    def summary(self) -> str:
        """One line per stage, then scores of the outputs, how the metric was computed, and notes."""
        columns = self.summary_table()
        widths = {name: max(len(name), *map(len, cells)) for name, cells in columns.items()}
        lines = ["  ".join(f"{name:>{width}}" for name, width in widths.items())]
        for row in zip(*columns.values(), strict=True):
            lines.append("  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths.values(), strict=True)))
        return "\n".join([*lines, *self.summary_lines()])


def dataset(
    rows: dict[str, list[Any]],
    order: list[str],
    result: dict[str, Any],
    grid: FactorGrid,
    mask: Tensor,
    method: str,
    reason: str,
    notes: list[str],
) -> Diagnosis:
    """The labelled Dataset; variables that depend on the metric say how it was computed."""
    names = grid.names
    axes = {
        "metric": (*names, "factor", "other_factor"), "volume": names, "factorization": names,
        "probe_in_sample": ("factor",), "probe_held_out": ("factor",), "schmidt": ("mode",),
    }  # fmt: skip
    columns = {}
    for name, values in rows.items():
        stacked = np.stack(values)
        dims = axes.get(name, ())
        on_grid = bool(dims) and dims[0] in names
        shape = (len(order), *(grid.shape if on_grid else ()), *stacked.shape[1 + on_grid :])
        columns[name] = (("stage", *dims), stacked.reshape(shape))
    coords = {factor.name: factor.values.numpy() for factor in grid.factors}
    data = {**columns, **result, "held_out": (names, mask.reshape(grid.shape).numpy())}
    labels = {"stage": order, "factor": list(names), "other_factor": list(names), **coords}
    said = {"metric": method, "metric_reason": reason}
    diagnosis = Diagnosis(data, coords=labels, attrs={**said, "notes": "\n".join(notes)})
    for name in OF_THE_METRIC & set(diagnosis.data_vars):
        diagnosis[name].attrs.update(said)
    return diagnosis


def _grid_axes(result: xarray.Dataset) -> list[str]:
    return [str(name) for name in result["held_out"].dims]


def _numbers(values: xarray.DataArray, form: str = ".3f") -> list[str]:
    return ["–" if np.isnan(value) else f"{value:{form}}" for value in np.atleast_1d(values.values)]
