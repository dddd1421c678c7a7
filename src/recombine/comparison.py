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

from recombine.errors import InvalidValue
from recombine.remedies import REMEDIES, Remedy
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
COMPOSES = 0.9
"""Held-out score from which a network composes: accuracy, or 1 less the error over blank where nothing has a place."""
PROVENANCE = ("recombine", "commit", "torch", "python", "device", "precision")
SCORES = ("id_accuracy", "ood_accuracy", "id_over_blank", "ood_over_blank", "id_mse", "ood_mse")


@dataclass(frozen=True)
class Comparison:
    """Scores of every remedy and seed.

    Parameters
    ----------
    data
        Scores by `remedy` and `seed`, with source, privileges, images, parameters and spec of each remedy. Attributes
        name commit, versions and device.
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
    """

    data: xarray.Dataset
    runs: Mapping[str, Sequence[Run]]

    def table(self) -> pandas.DataFrame:
        """One row per remedy, the best held-out score first."""
        import pandas

        rows = []
        for name in self.data["remedy"].values:
            own = self.data.sel(remedy=name)
            held_out = TrimmedMean.of(own["ood_score"].values).interval()
            low = max(held_out.low, 0.0) if self.data.attrs["score"] == ACCURACY else held_out.low
            composes = own["composes"].values
            rows.append({
                "remedy": str(name), "held out": held_out.value, "low": low, "high": min(held_out.high, 1.0),
                "kept": TrimmedMean.of(own["id_score"].values).value,
                "compose": f"{int(composes.sum())}/{len(composes)}",
                "collapsed": int(own["collapsed"].sum()), "seconds": float(own["seconds"].mean()),
                "images": int(own["images"]), "parameters": int(own["parameters"]),
                "knows": str(own["privileges"].values) or "–", "source": str(own["source"].values),
            })  # fmt: skip
        return pandas.DataFrame(rows).sort_values("held out", ascending=False, ignore_index=True)

    def draw(self) -> Figure:
        """Held-out scores with intervals and every seed, and the share of seeds that compose."""
        from matplotlib.figure import Figure

        from recombine.panels import COLORS, styled

        table = self.table()[::-1].reset_index(drop=True)
        with styled():
            figure = Figure(figsize=(7.5, 0.9 + 0.24 * len(table)), layout="constrained")
            scores, shares = figure.subplots(1, 2, sharey=True, width_ratios=(3, 1))
            for place, row in table.iterrows():
                own = self.data.sel(remedy=row["remedy"])
                scores.plot(own["ood_score"], np.full(own.sizes["seed"], place), "|", color=COLORS[4], alpha=0.6)
                scores.plot([row["low"], row["high"]], [place, place], color=COLORS[0], linewidth=2.5)
                scores.plot(row["held out"], place, "o", color=COLORS[0])
                scores.plot(row["kept"], place, "o", color="none", markeredgecolor=COLORS[5])
                composes = own["composes"].values
                share = Share.of(composes).interval()
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
    specs = {BASE: spec, **{name: own.apply(spec) for name, own in chosen.items()}}
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
    data["composes"] = data["ood_score"] >= COMPOSES
    data["collapsed"] = ~(data["id_over_blank"] < COLLAPSED)
    data["seconds"] = ("remedy", "seed"), np.array([[_seconds(run) for run in own] for own in runs.values()])
    per_remedy = {
        "source": [remedies[name].source if name in remedies else "" for name in specs],
        "privileges": [", ".join(remedies[name].privileges) if name in remedies else "" for name in specs],
        "images": [len(spec.task.training_values(spec.seed)) for spec in specs.values()],
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


def _seconds(run: Run) -> float:
    """Training time of one network: networks that trained together share theirs."""
    provenance = run.result["provenance"]
    return float(provenance["seconds"]) / int(provenance["members_together"])
