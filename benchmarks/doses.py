"""Largest doses of the cross-term (C36) at which networks still learn, for `causal_penalty` and `causal_reward`.

python -m benchmarks.doses --device cuda --out results/remedies/cross_term_doses.csv

Only scores on training examples are read. One weight has to do for all stages of a family, so that doses are the same.
"""

from __future__ import annotations

import argparse
import tempfile

import pandas
import torch

from recombine.papers.forced_rendering.causal import COMPOSING, FAILING, STAGES, Settings
from recombine.papers.forced_rendering.scores import training_fit
from recombine.reproduction.criteria import Learnt
from recombine.reproduction.measuring import Batch
from recombine.sweep import train

LARGEST, DOSES = 1e-1, 9
"""The largest weight that is tried, and how many there are, half a decade apart."""
SEEDS = range(900, 904)


def doses(preset: Settings, store: str, device: str) -> pandas.DataFrame:
    """Return the share of seeds that learn by family, weight and stage."""
    wide = preset.replace(causal_doses=DOSES, causal_penalty=LARGEST, causal_reward=LARGEST)
    specs = {(family, stage, dose): wide.dosed(family, stage, dose) for family in (FAILING, COMPOSING)
             for stage in STAGES for dose in range(1, DOSES + 1)}  # fmt: skip
    runs = iter(train([own for spec in specs.values() for own in spec.seeds(SEEDS)], store=store, device=device))
    rule, rows = Learnt(), []
    for (family, stage, _), spec in specs.items():
        done = [run for run in (next(runs) for _ in SEEDS) if run.status == "done"]
        fit = training_fit(Batch(done, torch.device("cpu"))) if done else {}
        learnt = sum(
            bool(error < rule.largest_error and score > rule.smallest_accuracy)
            for error, score in zip(*(fit[f"training_{name}"] for name in ("over_blank", "accuracy")), strict=True)
        ) if done else 0  # fmt: skip
        rows.append((family, spec.penalties[0].weight, stage, learnt / len(SEEDS)))
    table = pandas.DataFrame(rows, columns=["family", "weight", "stage", "learnt"])
    return table.pivot(index=["family", "weight"], columns="stage", values="learnt")


def main() -> None:
    """Print the table, and the largest weight of each family with which all seeds learn at every stage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--store", default=tempfile.gettempdir() + "/doses")
    parser.add_argument("--out", default="results/remedies/cross_term_doses.csv")
    given = parser.parse_args()
    table = doses(Settings.presets()[given.preset], given.store, given.device)
    table.to_csv(given.out)
    print(table.to_string())
    print(table[(table == 1).all(axis=1)].reset_index().groupby("family")["weight"].max().to_string())


if __name__ == "__main__":
    main()
