"""The arena's table and figure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from recombine.arena.protocol import CEILING, GATES, PLAIN
from recombine.console import number
from recombine.errors import InvalidValue
from recombine.manifest import write_into
from recombine.netcdf import decoded, encoded
from recombine.remedies import REMEDIES
from recombine.reproduction.intervals import TrimmedMean

if TYPE_CHECKING:
    import pandas
    import xarray
    from matplotlib.figure import Figure

SCORES, TUNING = "scores", "tuning"
"""Folders of a results folder, with a file for every task."""
LOWEST = -1.0
"""Scores below count as this one, so that a network that is arbitrarily wrong does not decide a mean."""
MOST = 0.5
"""Most seeds are more than this share."""


def clipped(scores: Any) -> np.ndarray:
    """Return scores between `LOWEST` and 1; those of networks that diverged are the lowest."""
    return np.clip(np.nan_to_num(np.asarray(scores, dtype=float), nan=LOWEST, neginf=LOWEST), LOWEST, 1)


CHOICES = ("inner", "id", "test")
"""Scores by which a configuration can be chosen: on the second hold-out, as the protocol says; on kept combinations;
and on the test region, which nobody could know (the oracle)."""


def chosen_by(log: pandas.DataFrame, score: str = "inner") -> dict[str, dict[str, int]]:
    """Return the number of the best configuration by task and remedy: the one with the highest mean over seeds."""
    if score not in CHOICES:
        raise InvalidValue("score", score, f"one of {CHOICES}")
    means = log.assign(own=clipped(log[score]))
    means = means.groupby(["task", "remedy", "configuration"], sort=False)["own"].mean()
    chosen: dict[str, dict[str, int]] = {}
    for (task, remedy), own in means.groupby(level=["task", "remedy"], sort=False):
        chosen.setdefault(str(task), {})[str(remedy)] = int(own.idxmax()[2])
    return chosen


@dataclass(frozen=True)
class Arena:
    """Scores of the chosen configurations, and the log of tuning.

    Parameters
    ----------
    data
        R² and accuracy by `task`, `remedy` and `seed`; controls by `task`.
    log
        R² by task, remedy, configuration and tuning seed; None if all configurations were chosen before.
    """

    data: xarray.Dataset
    log: pandas.DataFrame | None = None

    def save(self, folder: Path) -> None:
        """Write the Dataset and the log of each task to a folder."""
        for name in map(str, self.data["task"].values):
            own = self.data.sel(task=[name]).dropna("remedy", how="all", subset=["seconds"])
            write_into(folder / SCORES, {f"{name}.nc": encoded(own)})
            if self.log is not None:
                log = self.log[self.log["task"] == name].to_csv(index=False)
                write_into(folder / TUNING, {f"{name}.csv": log.encode()})

    @classmethod
    def open(cls, folder: Path, tasks: Iterable[str]) -> Self:
        """Return the results on those of the tasks that a folder has."""
        import pandas
        import xarray

        parts = [decoded(path.read_bytes()) for name in tasks if (path := folder / SCORES / f"{name}.nc").exists()]
        if not parts:
            raise InvalidValue("folder", str(folder), "one with results of 'recombine arena'")
        logs = [pandas.read_csv(path) for name in tasks if (path := folder / TUNING / f"{name}.csv").exists()]
        data = xarray.concat(parts, "task", join="outer", fill_value={"settings": ""}, combine_attrs="drop_conflicts")
        return cls(data, pandas.concat(logs) if logs else None)

    def scores(self, task: str, remedy: str) -> xarray.Dataset:
        """Return the scores of a remedy on a task, for the seeds that this task has."""
        return self.data.sel(task=task, remedy=remedy).dropna("seed", how="all", subset=["seconds"])

    @property
    def chosen(self) -> dict[str, dict[str, int]]:
        """Number of the chosen configuration, by task and remedy."""
        own = self.data["configuration"]
        return {
            str(task): {str(one): int(number) for one, number in zip(own["remedy"].values, row, strict=True)
                        if np.isfinite(number)}
            for task, row in zip(own["task"].values, own.transpose("task", "remedy").values, strict=True)
        }  # fmt: skip

    def table(self) -> pandas.DataFrame:
        """One row per task and remedy, the best held-out R² of each task first.

        `held out` and `kept` are 20 % trimmed means of R² over seeds, `95 % low` and `95 % high` the ends of the
        interval of `held out`. `compose` is the share of seeds whose R² is at least the protocol's bound on both.
        `gate` says how it is known that the remedy works as its paper says. `by … score` is the held-out R², in tuning,
        of the configuration that this score chooses.
        """
        import pandas

        data, rows = self.data, []
        least = data.attrs["composes"]
        others = {score: self._by(score) for score in CHOICES} if self.log is not None else {}
        for task in data["task"].values:
            for remedy in data["remedy"].values:
                own = self.scores(task, remedy)
                if not own.sizes["seed"]:
                    continue
                interval = TrimmedMean.of(clipped(own["ood_r2"])).interval()
                composes = (own["ood_r2"] >= least) & (own["id_r2"] >= least)
                rows.append({
                    "task": str(task), "remedy": str(remedy), "held out": interval.value, "95 % low": interval.low,
                    "95 % high": min(interval.high, 1.0), "compose": float(composes.mean()),
                    "kept": TrimmedMean.of(clipped(own["id_r2"])).value,
                    "accuracy": TrimmedMean.of(own["ood_accuracy"].values).value,
                    "seconds": float(own["seconds"].mean()), "images": int(own["images"]), "knows": privileges(remedy),
                    "gate": GATES.get(str(remedy), "none"),
                    **{f"by {score} score": own.get((str(task), str(remedy)), np.nan) for score, own in others.items()},
                })  # fmt: skip
        table = pandas.DataFrame(rows)
        order = {str(task): place for place, task in enumerate(data["task"].values)}
        return table.sort_values(
            ["task", "held out"], ascending=[True, False], ignore_index=True,
            key=lambda column: column.map(order) if column.name == "task" else column,
        )  # fmt: skip

    def _by(self, score: str) -> dict[tuple[str, str], float]:
        """Return the test R² in tuning, mean over seeds, of the configurations that a score chooses."""
        assert self.log is not None
        log = self.log.assign(test=clipped(self.log["test"]))
        means = log.groupby(["task", "remedy", "configuration"])["test"].mean()
        chosen = chosen_by(self.log, score)
        return {
            (task, remedy): float(means[task, remedy, k]) for task, own in chosen.items() for remedy, k in own.items()
        }

    def draw(self) -> Figure:
        """Held-out R² of every remedy on every task, the best on average first, and the controls below."""
        from matplotlib.figure import Figure

        from recombine.panels import styled

        table = self.table()
        scores = table.pivot(index="remedy", columns="task", values="held out")
        shares = table.pivot(index="remedy", columns="task", values="compose")
        tasks = [str(task) for task in self.data["task"].values]
        mean = scores.clip(lower=0).mean(axis=1).sort_values(ascending=False)
        last = [name for name in (PLAIN, CEILING) if name in scores.index]
        order = [name for name in mean.index if name not in last] + last
        controls = [str(name) for name in self.data["control"].values]
        below = {name: self.data["controls"].sel(control=name).values for name in controls}
        values = np.vstack([scores.loc[order, tasks].to_numpy(), np.array([below[name] for name in controls])])
        with styled():
            figure = Figure(figsize=(2.6 + 0.95 * len(tasks), 1.2 + 0.27 * len(values)), layout="constrained")
            ax = figure.subplots()
            image = ax.imshow(np.clip(values, 0, 1), cmap="cividis", vmin=0, vmax=1, aspect="auto")
            for row, line in enumerate(values):
                for column, value in enumerate(line):
                    if np.isfinite(value):
                        share = shares.loc[order[row], tasks[column]] if row < len(order) else 0.0
                        weight = "bold" if share > MOST else "normal"
                        color = "black" if value > 0.55 else "white"
                        text = number(max(value, LOWEST))
                        ax.text(column, row, text, ha="center", va="center", color=color, weight=weight, size=7)
            ax.axhline(len(order) - 0.5, color="white", linewidth=3)
            ax.set_xticks(range(len(tasks)), tasks)
            ax.set_yticks(range(len(values)), [*order, *controls])
            ax.tick_params(length=0)
            figure.colorbar(image, label="held-out R² (bold: most seeds compose)")
        return figure


def privileges(remedy: str) -> str:
    """Return what a remedy knows beyond the plain decoder, as text."""
    name = str(remedy).partition(":")[0]
    return ", ".join(REMEDIES[name].knows) if name in REMEDIES else ""
