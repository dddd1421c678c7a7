"""How much do scores move when the same seeds train in ensembles of another size?

python -m benchmarks.repeats --device cuda --out results/performance/repeats.csv --write docs/engine.md

On a GPU, libraries choose other algorithms for other batch sizes, and training amplifies the rounding. The same
networks train in ensembles of 8, twice, and together with others in ensembles of 40 and 128. Each of these trainings
has a store of its own, since a store trains a spec only once.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas

import recombine as rc
from recombine.papers.forced_rendering import PAPER, attention, factors, samples
from recombine.training import DEVICES

SIZES = (8, 8, 40, 128)
"""Numbers of networks that train together; the first is what the others are compared with."""
REPEATED, FIRST_SEED = 40, 2000
"""Number of networks whose scores are compared, and the first seed."""
SCORES = {"accuracy": "ood_accuracy", "error over blank": "ood_over_blank"}
BLOCK = "repeats"


def cases(preset: str = "paper") -> dict[str, rc.RunSpec]:
    """Return the specs to repeat by name; some compose, some fail and some are in between."""
    chosen = {
        "CNN": ("controls", (samples.FAILING,)),
        "CNN, stripes and 100 bumps": ("controls", (samples.STRIPED,)),
        "low-rank": ("controls", (samples.UNPENALISED,)),
        "low-rank, both penalties": ("controls", (samples.PENALISED,)),
        "coordinate MLP": ("attention", (attention.COORDINATE, attention.BASE)),
        "coordinate MLP, 3 factors, 80 combinations": ("factors", (factors.COORDINATE, 3, 80)),
        "transformer": ("attention", (attention.TRANSFORMER, attention.BASE)),
    }
    fields = PAPER.presets[preset]
    arms = {name: {arm.labels: arm.spec for arm in PAPER.studies[name].arms(fields)} for name, _ in chosen.values()}
    return {case: arms[study][labels] for case, (study, labels) in chosen.items()}


def repeats(
    specs: Mapping[str, rc.RunSpec], device: str, sizes: Sequence[int] = SIZES, repeated: int = REPEATED
) -> pandas.DataFrame:
    """Return held-out scores of the first seeds of every spec, trained in ensembles of each size."""
    rows = []
    for case, spec in specs.items():
        for number, size in enumerate(sizes):
            own = spec.seeds(range(FIRST_SEED, FIRST_SEED + max(size, repeated)))
            with tempfile.TemporaryDirectory() as store:
                runs = rc.train(own, store, device=device, members=size, progress=True)[:repeated]
                rows += [
                    {"networks": case, "training": number, "members": size, "seed": run.spec.seed,
                     "together": run.result["provenance"]["members_together"],
                     **{name: run.scores[score] for name, score in SCORES.items()}}
                    for run in runs
                ]  # fmt: skip
    return pandas.DataFrame(rows)


def moved(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return how much held-out accuracies differ from those of the first training, by networks and training.

    `mean` and `largest` are of absolute differences, `shift` is the difference of the means over seeds, and `seeds` the
    standard deviation over seeds in the first training.
    """
    rows = []
    for case, own in table.groupby("networks", sort=False):
        by_training = own.pivot(index="seed", columns="training", values="accuracy")
        sizes = own.groupby("training")["members"].first()
        first = by_training[0]
        for number in by_training.columns[1:]:
            change = by_training[number] - first
            rows.append({
                "networks": case, "members": f"{sizes[0]} and {sizes[number]}", "mean": change.abs().mean(),
                "largest": change.abs().max(), "shift": change.mean(), "seeds": first.std(),
            })  # fmt: skip
    return pandas.DataFrame(rows)


def block(table: pandas.DataFrame) -> str:
    """Return the Markdown of the document's block."""
    lines = [
        "| networks | members | change of held-out accuracy, mean | largest | change of the mean | std over seeds |",
        "|---|---|---|---|---|---|",
    ]
    for row in moved(table).to_dict("records"):
        numbers = (f"{row[name]:.3f}" for name in ("mean", "largest", "shift", "seeds"))
        lines.append(f"| {row['networks']} | {row['members']} | {' | '.join(numbers)} |")
    split = table[table["together"] < table["members"]]["networks"].unique()
    count = table.groupby(["networks", "training"]).size().max()
    note = f"{count} networks each." + (f" Memory allowed fewer members together for: {', '.join(split)}." * len(split))
    return "\n".join([*lines, "", note])


def write_block(path: Path, text: str) -> None:
    """Replace the marked block of a document."""
    before = path.read_text()
    mark = re.compile(rf"(<!-- {BLOCK}: begin -->\n).*?(\n<!-- {BLOCK}: end -->)", re.DOTALL)
    if not mark.search(before):
        raise SystemExit(f"{path} must have a block <!-- {BLOCK}: begin --> … <!-- {BLOCK}: end -->")
    path.write_text(mark.sub(lambda found: found[1] + text + found[2], before))


def main() -> None:
    """Train, write the table, and fill the document."""
    known = cases()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", choices=DEVICES)
    parser.add_argument(
        "--networks",
        nargs="+",
        choices=known,
        default=list(known)[:-1],
        help="which of them to repeat; default: all but the transformer, which takes as long as the others",
    )
    parser.add_argument("--out", type=Path, default=Path("results/performance/repeats.csv"))
    parser.add_argument("--from", dest="source", type=Path, help="use this table instead of training")
    parser.add_argument("--write", type=Path, help="document whose marked block to fill")
    given = parser.parse_args()
    if given.source:
        table = pandas.read_csv(given.source)
    else:
        table = repeats({name: known[name] for name in given.networks}, given.device)
        given.out.parent.mkdir(parents=True, exist_ok=True)
        table.to_csv(given.out, index=False)
    print(block(table))
    if given.write:
        write_block(given.write, block(table))


if __name__ == "__main__":
    main()
