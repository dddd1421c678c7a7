"""Remedies side by side: the same base with each of them, over many seeds.

>>> import recombine as rc
>>> result = rc.compare(rc.RunSpec(), ["broadcast", "hessian:weight=1e-6", "isolated"], seeds=32)
>>> print(result.table())
>>> result.draw().savefig("remedies.png")
>>> result.explore().save("remedies.html")
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recombine.console import aligned
from recombine.diagnosis.outcome import COMPOSES, PARTLY, UNLEARNT, outcome
from recombine.errors import InvalidValue
from recombine.remedies import REMEDIES, Remedy
from recombine.reproduction.criteria import Learnt
from recombine.reproduction.intervals import Share, TrimmedMean
from recombine.specs import RunSpec
from recombine.store import Run, Store
from recombine.sweep import train
from recombine.sweep.executors import COLLAPSED

if TYPE_CHECKING:
    import pandas
    import xarray
    from matplotlib.figure import Figure

    from recombine.page import ExplorerPage

BASE = "none"
"""Name of the base itself, which every comparison has."""
ACCURACY = "accuracy"
FEWEST = Learnt().fewest_networks
"""Number of seeds below which no interval is shown, as no claim is judged on fewer networks."""
PROVENANCE = ("recombine", "commit", "torch", "python", "device", "precision")
SCORES = ("id_accuracy", "ood_accuracy", "id_over_blank", "ood_over_blank", "id_mse", "ood_mse")


@dataclass(frozen=True)
class Comparison:
    """Scores of every remedy and seed.

    Parameters
    ----------
    data
        Scores by `remedy` and `seed`, with source, privileges, training images, parameters and spec of each remedy.
        Attributes name commit, versions and device. Which networks compose is always computed from the scores.
    runs
        Runs by remedy, one per seed; only the page needs them.

    Examples
    --------
    >>> import recombine as rc
    >>> from tempfile import TemporaryDirectory
    >>> spec = rc.RunSpec(task=rc.BumpTask(size=8), decoder="mlp:width=8:depth=1", recipe=rc.Recipe(steps=3))
    >>> with TemporaryDirectory() as store:
    ...     result = rc.compare(spec, ["isolated"], seeds=2, store=store)
    >>> dict(result.data.sizes)
    {'remedy': 2, 'seed': 2}
    >>> result.outcomes.sel(remedy="none").values.tolist()
    ['not learnt', 'not learnt']
    """

    data: xarray.Dataset
    runs: Mapping[str, Sequence[Run]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", self.data.assign(composes=self.outcomes == COMPOSES))

    @property
    def outcomes(self) -> xarray.DataArray:
        """Whether each network composes, by the rule of `diagnose` with errors over those of a blank output.

        A network whose training diverged has not learnt.
        """
        import xarray

        def of(*values: float) -> str:
            own = dict(zip(SCORES, values, strict=True))
            return UNLEARNT if np.isnan(own["id_mse"]) else outcome(own, "blank")

        scores = [self.data[name] for name in SCORES]
        return xarray.apply_ufunc(of, *scores, vectorize=True, output_dtypes=[object])

    def table(self) -> pandas.DataFrame:
        """One row per remedy, the best held-out score first.

        `held out` and `kept` are 20 % trimmed means over seeds of the accuracy (where images have none, of 1 less the
        error over blank); `95 % low` and `95 % high` are the ends of the interval of `held out`, empty for fewer than
        8 seeds. Of the `seeds`, `compose` do, `partly` compose partly, and `not learnt` have not even learnt the kept
        images. `seconds` is the training time of one network, `training images` the number of distinct images that one
        seed trains on. `knows` lists the privileges of a remedy over the plain network.
        """
        import pandas

        rows, seeds = [], self.data["seed"]
        lowest = 0.0 if self.data.attrs["score"] == ACCURACY else -np.inf
        for name in self.data["remedy"].values:
            own = self.data.sel(remedy=name)
            held_out, outcomes = TrimmedMean.of(own["ood_score"].values).interval(), self.outcomes.sel(remedy=name)
            ends = (held_out.low, held_out.high) if held_out.networks >= FEWEST else (np.nan, np.nan)
            low, high = np.clip(ends, lowest, 1.0)
            counts = {kind: int((outcomes == kind).sum()) for kind in (COMPOSES, PARTLY, UNLEARNT)}
            rows.append({
                "remedy": str(name), "held out": held_out.value, "95 % low": low, "95 % high": high,
                "kept": TrimmedMean.of(own["id_score"].values).value,
                "compose": counts[COMPOSES], "partly": counts[PARTLY], "not learnt": counts[UNLEARNT],
                "seeds": len(seeds), "seconds": float(own["seconds"].mean()),
                "training images": int(own["images"]), "parameters": int(own["parameters"]),
                "knows": str(own["privileges"].values) or "–", "source": str(own["source"].values),
            })  # fmt: skip
        return pandas.DataFrame(rows).sort_values("held out", ascending=False, ignore_index=True)

    def cells(self) -> dict[str, list[str]]:
        """Return the table as text, by column."""
        table = self.table()
        intervals = [
            "" if np.isnan(low) else f" [{low:.3f}, {high:.3f}]"
            for low, high in zip(table["95 % low"], table["95 % high"], strict=True)
        ]
        heading = f"held-out {self.data.attrs['score']}{' [95 %]' if any(intervals) else ''}"
        return {
            "remedy": list(table["remedy"]),
            heading: [f"{value:.3f}{interval}" for value, interval in zip(table["held out"], intervals, strict=True)],
            "kept": [f"{value:.3f}" for value in table["kept"]],
            "compose": [_counted(row) for _, row in table.iterrows()],
            "knows": list(table["knows"]),
            "s": [f"{value:.2f}" for value in table["seconds"]],
            "training images": [str(value) for value in table["training images"]],
            "from": list(table["source"]),
        }

    def __repr__(self) -> str:
        columns = dict(list(self.cells().items())[:5])
        return "\n".join(aligned(columns, left=("remedy", "compose", "knows")))

    def draw(self) -> Figure:
        """Held-out scores and the share of seeds that compose, with intervals from 8 seeds on, and every seed."""
        from matplotlib.figure import Figure

        from recombine.panels import COLORS, styled

        table = self.table()[::-1].reset_index(drop=True)
        with styled():
            figure = Figure(figsize=(7.5, 0.9 + 0.24 * len(table)), layout="constrained")
            scores, shares = figure.subplots(1, 2, sharey=True, width_ratios=(3, 1))
            for place, row in table.iterrows():
                own = self.data.sel(remedy=row["remedy"])
                scores.plot(own["ood_score"], np.full(own.sizes["seed"], place), "|", color=COLORS[4], alpha=0.6)
                scores.plot([row["95 % low"], row["95 % high"]], [place, place], color=COLORS[0], linewidth=2.5)
                scores.plot(row["held out"], place, "o", color=COLORS[0])
                scores.plot(row["kept"], place, "o", color="none", markeredgecolor=COLORS[5])
                share = Share.of(own["composes"].values).interval()
                if share.networks >= FEWEST:
                    shares.plot([share.low, share.high], [place, place], color=COLORS[2], linewidth=2.5)
                shares.plot(share.value, place, "o", color=COLORS[2])
            scores.set_yticks(range(len(table)), table["remedy"])
            scores.set_ylim(-0.6, len(table) - 0.4)
            scores.set_xlabel(f"{self.data.attrs['score']}: held out (blue), kept (orange)")
            shares.set_xlabel("seeds that compose")
            shares.set_xlim(-0.05, 1.05)
        return figure

    def explore(self, **options: Any) -> ExplorerPage:
        """A page with one decoder per remedy, the one with the median held-out score."""
        from recombine.page import explore

        chosen = {}
        for name, runs in self.runs.items():
            order = np.argsort(self.data["ood_score"].sel(remedy=name).values)
            chosen[name] = runs[int(order[len(order) // 2])]
        labels = [{"remedy": name} for name in chosen]
        return explore(chosen, **{"title": "Remedies side by side", "labels": labels, **options})


def compare(
    spec: RunSpec,
    remedies: Iterable[Remedy | str],
    seeds: int | Iterable[int] = 32,
    store: Store | str | os.PathLike[str] | None = None,
    **options: Any,
) -> Comparison:
    """Train a base with each remedy over many seeds.

    Parameters
    ----------
    spec
        The base: task, decoder and recipe. It is trained as well, under the name "none".
    remedies
        Remedies, as records or as text (`hessian:weight=1e-6`).
    seeds
        How many seeds, from the base's own on, or which.
    store
        Where runs are kept; completed ones are loaded from it.
    options
        Those of `train`: device, members, processes, scheduler, …

    Returns
    -------
    Comparison
        Scores as a Dataset, a table, a figure and a page.

    Examples
    --------
    >>> import recombine as rc
    >>> from tempfile import TemporaryDirectory
    >>> spec = rc.RunSpec(task=rc.BumpTask(size=8), decoder="mlp:width=8:depth=1", recipe=rc.Recipe(steps=20))
    >>> with TemporaryDirectory() as store:
    ...     result = rc.compare(spec, ["additive", "mixup:weight=0.1"], seeds=2, store=store)
    >>> sorted(result.table()["remedy"])
    ['additive', 'mixup:weight=0.1', 'none']
    """
    seeds = range(spec.seed, spec.seed + seeds) if isinstance(seeds, int) else list(seeds)
    if not len(seeds):
        raise InvalidValue("seeds", seeds, "at least one")
    chosen = {str(own): own for own in map(REMEDIES.parse, remedies)}
    specs = {BASE: spec, **{name: spec.with_remedy(own) for name, own in chosen.items()}}
    trained = iter(train([member for own in specs.values() for member in own.seeds(seeds)], store, **options))
    runs = {name: [next(trained) for _ in seeds] for name in specs}
    return Comparison(_dataset(specs, chosen, runs, list(seeds)), runs)


def _dataset(
    specs: Mapping[str, RunSpec], remedies: Mapping[str, Remedy], runs: Mapping[str, Sequence[Run]], seeds: list[int]
) -> xarray.Dataset:
    import xarray

    def scores(name: str) -> list[list[float]]:
        return [[run.scores.get(name, np.nan) for run in own] for own in runs.values()]

    data = xarray.Dataset(
        {name: (("remedy", "seed"), np.array(scores(name), dtype=float)) for name in SCORES},
        {"remedy": list(specs), "seed": seeds},
    )
    has_places = bool(np.isfinite(data["ood_accuracy"]).any())
    for region in ("id", "ood"):
        data[f"{region}_score"] = data[f"{region}_accuracy"] if has_places else 1 - data[f"{region}_over_blank"]
    data["collapsed"] = ~(data["id_over_blank"] < COLLAPSED)
    data["seconds"] = ("remedy", "seed"), np.array([[seconds_of(run) for run in own] for own in runs.values()])
    per_remedy = {
        "source": [remedies[name].source if name in remedies else "" for name in specs],
        "privileges": [", ".join(remedies[name].privileges) if name in remedies else "" for name in specs],
        "images": [spec.task.training_images(spec.seed) for spec in specs.values()],
        "parameters": [sum(part.numel() for part in spec.module().parameters()) for spec in specs.values()],
    }
    for name, values in per_remedy.items():
        data[name] = "remedy", values
    data["spec"] = "remedy", [spec.model_dump_json(exclude={"seed"}) for spec in specs.values()]
    data.attrs["score"] = ACCURACY if has_places else "1 − error over blank"
    found = [run.result["provenance"] for own in runs.values() for run in own]
    for name in PROVENANCE:
        data.attrs[name] = ", ".join(sorted({str(one.get(name)) for one in found}))
    return data


def _counted(row: pandas.Series) -> str:
    """Return how many seeds compose, compose partly and have not learnt, such as `18/32 (14 partly)`."""
    if row[UNLEARNT] == row["seeds"]:
        return UNLEARNT
    others = ", ".join(f"{row[name]} {name}" for name in ("partly", UNLEARNT) if row[name])
    return f"{row['compose']}/{row['seeds']}" + (f" ({others})" if others else "")


def seconds_of(run: Run) -> float:
    """Training time of one network: networks that trained together share theirs."""
    provenance = run.result["provenance"]
    return float(provenance["seconds"]) / int(provenance["members_together"])
