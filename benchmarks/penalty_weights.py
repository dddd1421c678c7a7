"""Strengths of the penalties on the paper's main task: how well kept combinations are learnt, by strength and epochs.

python -m benchmarks.penalty_weights --device cuda --out results/remedies/penalty_weights.csv

Every arm of the penalty study has the same choices: strengths relative to the published ones times multiples of the
preset's epochs. The strongest penalties with which at least three quarters of the networks of every arm learnt (kept
error below a tenth of a blank image's, and more than 95 % of the bumps in place), and of these the fewest epochs, are
marked; if there are none, those with the largest smallest share. They become `penalty_box_strength` and
`penalty_box_length` of the paper preset, and `penalty_box_bump_…` for bump codes. Held-out scores are not read.
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import product

import pandas

from recombine.papers.forced_rendering import PAPER
from recombine.papers.forced_rendering.penalties import ARMS, BOX_CODES, PenaltySettings, boxed_spec
from recombine.reproduction.criteria import Learnt
from recombine.sweep import train

STRENGTHS, LENGTHS = (0.01, 0.1, 1.0), (1.0, 2.0)
SEEDS = range(900, 904)
SCORES = ["id_over_blank", "id_accuracy"]


def weights(preset: PenaltySettings, store: str, device: str) -> pandas.DataFrame:
    """Return the scores on kept combinations and the share of networks that learnt, with the choice marked."""
    arms = {}
    for strength, length in product(STRENGTHS, LENGTHS):
        own = preset.replace(
            penalty_box_strength=strength, penalty_box_length=length,
            penalty_box_bump_strength=strength, penalty_box_bump_length=length,
        )  # fmt: skip
        for code, arm in product(BOX_CODES.values(), ARMS):
            arms[code, strength, length, arm] = boxed_spec(own, arm, code)
    specs = {labels: spec.seeds(SEEDS) for labels, spec in arms.items()}
    every = {spec.digest: spec for own in specs.values() for spec in own}  # the arm without penalties is shared
    scores = {run.key: [run.scores[name] for name in SCORES] for run in train(every.values(), store, device=device)}
    rule, rows = Learnt(), []
    for labels, own in specs.items():
        error, accuracy = pandas.DataFrame([scores[spec.digest] for spec in own], columns=SCORES).values.T
        learnt = (error < rule.largest_error) & (accuracy > rule.smallest_accuracy)
        rows.append((*labels, pandas.Series(error).median(), pandas.Series(accuracy).median(), learnt.mean()))
    table = pandas.DataFrame(rows, columns=["code", "strength", "length", "arm", *SCORES, "share that learnt"])
    smallest = table.groupby(["code", "strength", "length"])["share that learnt"].min().clip(upper=rule.smallest_share)
    order = smallest.reset_index().sort_values(
        ["share that learnt", "strength", "length"], ascending=[False, False, True]
    )
    chosen = set(order.groupby("code")[["strength", "length"]].first().itertuples(name=None))
    return table.assign(chosen=[row in chosen for row in table[["code", "strength", "length"]].itertuples(False, None)])


def main() -> None:
    """Print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--store")
    parser.add_argument("--out", default="results/remedies/penalty_weights.csv")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = weights(PAPER.preset_named(given.preset), given.store or folder, given.device)
    print(table.round(4).to_string(index=False))
    table.to_csv(given.out, index=False)


if __name__ == "__main__":
    main()
