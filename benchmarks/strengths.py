"""Default weights of penalties: the largest power of ten at which kept images are still learnt.

python -m benchmarks.strengths --device cuda --out results/remedies/strengths.csv

"Still learnt" means a kept error of at most twice that with weight 0, on the bump task. Held-out scores are not read,
so a default is no result of the comparison that uses it.
"""

from __future__ import annotations

import argparse

import pandas

import recombine as rc
from recombine.cli.compare import NEEDS_LOW_RANK

POWERS = range(-12, 4)
ALLOWED = 2.0
"""Kept error over that with weight 0."""
SEEDS = range(2000, 2002)


def strengths(base: rc.RunSpec, store: str | None, device: str) -> pandas.DataFrame:
    """Kept errors of every penalty and weight, over that with weight 0, with the chosen weights marked."""
    kinds = [
        kind for kind, remedy in rc.REMEDIES.items() if issubclass(remedy, rc.Penalty) and kind not in NEEDS_LOW_RANK
    ]
    weights = [0.0, *(10.0**power for power in POWERS)]
    names = [f"{kind}:weight={weight:g}" for kind in kinds for weight in weights]
    errors = (
        rc.compare(base, names, SEEDS, store, device=device, progress=True).data["id_mse"].median("seed").values[1:]
    )
    rows = []
    for kind, (plain, *others) in zip(kinds, errors.reshape(len(kinds), -1), strict=True):
        rows += [(kind, power, error / plain) for power, error in zip(POWERS, others, strict=True)]
    table = pandas.DataFrame(rows, columns=["penalty", "power", "kept error"])
    learnt = table[table["kept error"] <= ALLOWED].groupby("penalty")["power"].max()
    return table.assign(chosen=table["power"] == table["penalty"].map(learnt))


def main() -> None:
    """Print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--store")
    parser.add_argument("--out", default="results/remedies/strengths.csv")
    given = parser.parse_args()
    recipe = rc.Recipe(steps=given.steps, precision="bf16" if given.device == "cuda" else "float32")
    table = strengths(rc.RunSpec(decoder="cnn", recipe=recipe), given.store, given.device)
    print(table.pivot(index="penalty", columns="power", values="kept error").round(2).to_string())
    print(table[table["chosen"]].to_string(index=False))
    table.to_csv(given.out, index=False)


if __name__ == "__main__":
    main()
