"""Default weights of penalties: the largest power of ten at which kept images are still learnt.

python -m benchmarks.strengths --device cuda --out results/remedies/strengths.csv

"Learnt" means that the kept error is at most a tenth of a blank image's, on the bump task, or at most 1.1 times that
with weight 0, where the decoder does not get so far without the penalty either. Held-out scores are not read, so a
default is no result of the comparison that uses it.
"""

from __future__ import annotations

import argparse

import pandas

import recombine as rc
from recombine.cli.compare import NEEDS_LOW_RANK

POWERS = range(-12, 4)
LEARNT, WORSE = 0.1, 1.1
"""Kept error over blank, and over that with weight 0."""
SEEDS = range(2000, 2002)


def strengths(base: rc.RunSpec, store: str | None, device: str) -> pandas.DataFrame:
    """Kept errors of every penalty and weight, with the chosen weights marked."""
    penalties = {kind for kind, remedy in rc.REMEDIES.items() if issubclass(remedy, rc.Penalty)}
    forms = {kind: f"{kind}:weight={{0:g}}" for kind in sorted(penalties.difference(NEEDS_LOW_RANK))}
    forms["low_rank"] = "low_rank:entropy={0:g}:variance={1:g}"  # weights in the published ratio
    weights = [0.0, *(10.0**power for power in POWERS)]
    names = [form.format(weight, weight / 10) for form in forms.values() for weight in weights]
    result = rc.compare(base, names, SEEDS, store, device=device, progress=True)
    errors = result.data["id_over_blank"].median("seed").values[1:]
    rows = []
    for kind, (plain, *others) in zip(forms, errors.reshape(len(forms), -1), strict=True):
        allowed = max(LEARNT, WORSE * plain)
        rows += [(kind, power, error, error <= allowed) for power, error in zip(POWERS, others, strict=True)]
    table = pandas.DataFrame(rows, columns=["penalty", "power", "kept error over blank", "learnt"])
    strongest = table[table["learnt"]].groupby("penalty")["power"].max()
    return table.assign(chosen=table["power"] == table["penalty"].map(strongest))


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
    print(table.pivot(index="penalty", columns="power", values="kept error over blank").round(3).to_string())
    print(table[table["chosen"]].to_string(index=False))
    table.to_csv(given.out, index=False)


if __name__ == "__main__":
    main()
