"""Recipes for three to five factors, chosen by scores on the training set alone.

python -m benchmarks.factors_search --device cuda --factors 3 --out results/factors_search.csv

Every arm of the factors study gets the same number of choices: multiples of its steps, its learning rate, and the
weights of its penalties (of its weight decay, if it has no penalties). A network has learnt if its error on the
training set is below a tenth of a blank image's and more than 95 % of the trained combinations have every value right.
The chosen recipe has the most networks that learnt, and among equals the strongest penalties, then the fewest steps,
then the lowest learning rate. If no network learnt, it has the most values right. Held-out scores are not read.

Processes for different numbers of factors may run side by side; each replaces only its own rows of the table and its
own entries of `factors_recipes.json`.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import cast

import pandas
import torch

from recombine.files import write
from recombine.papers.forced_rendering import PAPER
from recombine.papers.forced_rendering import factors as study
from recombine.reproduction.criteria import Learnt
from recombine.reproduction.measuring import Batch
from recombine.reproduction.study import DONE
from recombine.store import Run
from recombine.sweep import train
from recombine.training import DEVICES, resolve_device

SEEDS = range(900, 904)
STRENGTHS, STEPS, RATES = (1.0, 0.1, 0.01), (1.0, 2.0), (1.0, 3.0)
RULE = Learnt()
CHOICE = ["strength", "steps", "lr"]
"""In the order of preference among equals; the first value of each is the default."""


def search(
    preset: study.Settings, count: int, store: str | None, device: torch.device, seeds: Sequence[int] = SEEDS
) -> pandas.DataFrame:
    """Train every choice of every arm with `count` factors, and return its scores on the training set."""
    choices = [dict(zip(CHOICE, own, strict=True)) for own in product(STRENGTHS, STEPS, RATES)]
    trials = [
        (arm, choice, study.with_choice(spec, **choice).seeds(seeds))
        for arm, spec in study.remedies(preset, count)
        for choice in choices
    ]
    specs = [spec for *_, own in trials for spec in own]
    runs = iter(train(specs, store, device=device.type, progress=True))
    rows = []
    for arm, choice, own in trials:
        labels = {"factors": count, "arm": arm, **choice}
        rows += [{**labels, **scores} for scores in _scores([next(runs) for _ in own], device)]
    return pandas.DataFrame(rows)


def _scores(runs: Sequence[Run], device: torch.device) -> Iterator[dict[str, float]]:
    """Yield the networks' scores on their training set; those that diverged have not learnt."""
    done = [run for run in runs if run.status == DONE]
    scores = study.training_scores(Batch(done, device)) if done else {}
    errors, right = (
        iter(scores.get(name, torch.empty(0)).tolist()) for name in ("training_over_blank", study.RIGHT_KEPT)
    )
    for run in runs:
        error, share = (next(errors), next(right)) if run.status == DONE else (float("inf"), 0.0)
        learnt = error < RULE.largest_error and share > RULE.smallest_accuracy
        yield {"seed": run.spec.seed, "error over blank": error, "values right": share, "learnt": float(learnt)}


def chosen(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return one row per number of factors and arm, with the chosen multiples.

    >>> rows = [(4, "CNN", 1.0, 1.0, 1.0, 0.9, 0.0), (4, "CNN", 1.0, 2.0, 1.0, 1.0, 1.0)]
    >>> rows.append((4, "CNN", 0.1, 1.0, 1.0, 1.0, 1.0))
    >>> table = pandas.DataFrame(rows, columns=["factors", "arm", *CHOICE, "values right", "learnt"])
    >>> chosen(table)[CHOICE].values.tolist()
    [[1.0, 2.0, 1.0]]
    """
    means = table.groupby(["factors", "arm", *CHOICE], as_index=False)[["learnt", "values right"]].mean()
    means["right"] = means["values right"].where(means["learnt"] == 0, 0.0).round(3)
    order = means.sort_values(["learnt", "right", *CHOICE], ascending=[False, False, False, True, True])
    return order.groupby(["factors", "arm"], as_index=False).first()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other searches from writing the same files, by a lock on their folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def save(table: pandas.DataFrame, out: Path, recipes: Path) -> None:
    """Replace the rows and recipes of the table's numbers of factors, and keep all others."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with _alone(out.parent):
        if out.exists():
            before = pandas.read_csv(out)
            table = pandas.concat([before[~before["factors"].isin(table["factors"].unique())], table])
        table = table.sort_values("factors", kind="stable")
        write(out, table.to_csv(index=False).encode(), "out")
        entries: dict[str, dict[str, dict[str, float]]] = {}
        for row in chosen(table).to_dict("records"):
            entries.setdefault(str(row["factors"]), {})[row["arm"]] = {name: row[name] for name in CHOICE}
        kept = json.loads(recipes.read_text()) if recipes.exists() else {}
        write(recipes, (json.dumps({**kept, **entries}, indent=1, sort_keys=True) + "\n").encode(), "recipes")


def main() -> None:
    """Search, print what was chosen, and write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", choices=DEVICES)
    parser.add_argument("--factors", type=int, nargs="+", default=[3, 4, 5])
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--store")
    parser.add_argument("--out", type=Path, default=Path("results/factors_search.csv"))
    parser.add_argument("--recipes", type=Path, default=study.RECIPES)
    given = parser.parse_args()
    for count in given.factors:
        table = search(
            cast(study.Settings, PAPER.preset_named(given.preset)), count, given.store, resolve_device(given.device)
        )
        save(table, given.out, given.recipes)
        print(chosen(table).to_string(index=False))


if __name__ == "__main__":
    main()
