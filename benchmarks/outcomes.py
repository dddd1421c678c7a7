"""Is the outcome that `diagnose` reports right, and the stage that it names? Trained networks and planted decoders.

    python -m benchmarks.outcomes --store FOLDER --out results/outcomes  # trains and measures; resumes if interrupted
    python -m benchmarks.outcomes --table results/outcomes               # the tables of docs/metrics.md

Trained networks: MLPs, CNNs and pixel-wise decoders of bumps, with different hold-outs, codes, training sets and
lengths of training, some of which compose. Planted decoders: `benchmarks/planted.py`. Networks with an even seed were
used to set the limits of `recombine.diagnosis.outcome`, those with an odd seed to check them.
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path
from typing import Any

import pandas
import torch

import recombine as rc
from benchmarks.planted import BREAKS, STAGES, PlantedDecoder
from recombine.diagnosis.outcome import COMPOSES, FAILS, PARTLY, UNLEARNT, outcome, parting_stage
from recombine.sweep.group import git_commit

SEEDS = 20
SCORES = ("id_over_mean", "ood_over_mean", "id_accuracy", "ood_accuracy")
MEASURED = ["step_change", "ood_error"]
MLP, CNN, COORDINATE = "mlp:width=64:depth=2", "cnn:width=12:depth=3", "coordinate:width=24:depth=2"
ORDER = (COMPOSES, PARTLY, FAILS, UNLEARNT)


def conditions() -> dict[str, rc.RunSpec]:
    """Return one spec per condition, by a name of decoder, code, hold-out and training."""

    def spec(decoder: str, *remedies: str, steps: int = 600, size: int = 10, **task: Any) -> rc.RunSpec:
        own = rc.RunSpec(
            task=rc.BumpTask(size=size, **{"training": "each", **task}), decoder=decoder,
            recipe=rc.Recipe(steps=steps, lr=3e-3),
        )  # fmt: skip
        for remedy in remedies:
            own = own.with_remedy(remedy)
        return own

    found = {}
    for code in ("bump", "onehot"):
        for holdout in ("center", "corner", "center:4:5"):
            found[f"mlp, {code}, {holdout}"] = spec(MLP, encoding=code, holdout=holdout)
        for holdout in ("center", "corner"):
            found[f"coordinate, {code}, {holdout}"] = spec(COORDINATE, encoding=code, holdout=holdout, steps=500)
            found[f"mlp, {code}, {holdout}, stripes"] = spec(MLP, "isolated", encoding=code, holdout=holdout)
        found[f"mlp, {code}, center, whole grid"] = spec(MLP, encoding=code, region="whole")
    for holdout in ("center", "corner"):
        found[f"multilinear, bump, {holdout}"] = spec(MLP, "multilinear", holdout=holdout)
        found[f"implicit, bump, {holdout}"] = spec(MLP, "implicit:activation=relu:width=24", holdout=holdout)
    for steps in (30, 100):
        found[f"mlp, bump, center, {steps} steps"] = spec(MLP, steps=steps)
    cnn = {"size": 14, "steps": 300}
    for holdout in ("center", "corner"):
        found[f"cnn, bump, {holdout}"] = spec(CNN, holdout=holdout, **cnn)
    found["cnn, bump, center, stripes"] = spec(CNN, "isolated", **cnn)
    return found


def measured(decoder: Any, **settings: Any) -> dict[str, Any]:
    """Return the scores of a decoder and the step change of each stage."""
    result = rc.diagnose(decoder, metrics=MEASURED, **settings)
    changes = {str(stage): round(float(own), 4) for stage, own in result["step_change"].to_series().items()}
    return {name: float(result[name]) for name in SCORES} | {"changes": json.dumps(changes)}


def trained(store: Path) -> pandas.DataFrame:
    """Train and measure all networks; completed runs are loaded from the store."""
    rows = []
    for name, spec in conditions().items():
        for run in rc.train(spec.seeds(range(SEEDS)), store, device="cpu"):
            within = {"within_a_pixel": run.scores["ood_accuracy"]}
            rows.append({"condition": name, "seed": run.spec.seed} | measured(run) | within)
    return pandas.DataFrame(rows)


def planted(size: int = 12) -> pandas.DataFrame:
    """Measure decoders that break at a known stage, and as many that do not break."""
    grid, rows = f"x=0:{size - 1},y=0:{size - 1}", []
    cases = [(how, stage) for how in BREAKS for stage in STAGES]
    for seed, holdout in enumerate(("center:4:8", "center:5:6", "corner:7", "cross", "random", "L")):
        task = rc.BumpTask(size=size, holdout=holdout)
        settings = {"encode": "bump", "holdout": holdout, "targets": task.render(task.grid.points)}
        for how, stage in [*cases, *[("nowhere", "")] * len(cases)]:
            module = PlantedDecoder(size, task.held_out, stage, how, seed=seed * 100 + len(rows))
            about = {"holdout": holdout, "break": how, "stage": "output" if stage == STAGES[-1] else stage}
            rows.append(about | measured(module, grid=grid, **settings))
    return pandas.DataFrame(rows)


def judged(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rows with the outcome and the stage at which held-out points part from kept ones ("" for none)."""
    changes = [json.loads(own) for own in rows["changes"]]
    stages = [parting_stage(own, own.values()) for own in changes]
    outcomes = [outcome(own) for own in rows[list(SCORES)].to_dict("records")]
    return rows.assign(outcome=outcomes, parts_at=["" if found is None else found[0] for found in stages])


def confusion(rows: pandas.DataFrame) -> str:
    """Return a Markdown table of outcomes by the fraction of held-out outputs that are right."""
    labels = ["under 50 %", "50 to 80 %", "80 to 95 %", "95 % or more"]
    shares = pandas.cut(rows["ood_accuracy"], [0, 0.5, 0.8, 0.95, 1.01], labels=labels, right=False)
    table = pandas.crosstab(rows["outcome"], shares).reindex(index=ORDER, columns=labels, fill_value=0)
    lines = [f"| {' | '.join(['outcome', *labels])} |", f"| {' | '.join(['---'] * (len(labels) + 1))} |"]
    return "\n".join([*lines, *(f"| {name} | {' | '.join(map(str, own))} |" for name, own in table.T.items())])


def tables(folder: Path) -> str:
    """Return the tables of docs/metrics.md."""
    networks, modules = (judged(pandas.read_csv(folder / name, keep_default_na=False)) for name in FILES)
    checked = networks[networks["seed"] % 2 == 1]
    composing = checked[checked["outcome"] == COMPOSES]
    failing = checked[checked["outcome"].isin([FAILS, PARTLY])]
    broken, exact = modules[modules["break"] != "nowhere"], modules[modules["break"] == "nowhere"]
    right = (broken["parts_at"] == broken["stage"]).mean()
    quiet, silent = (f"{(own['parts_at'] == '').mean():.0%} of {len(own)}" for own in (exact, composing))
    loud = f"{(failing['parts_at'] != '').mean():.0%} of {len(failing)}"
    return "\n\n".join([
        f"{len(networks)} trained networks, by the fraction of their held-out outputs that are right:",
        confusion(networks),
        f"{len(modules)} planted decoders:",
        confusion(modules),
        f"The stage is named right in {right:.0%} of {len(broken)} planted decoders that break, and none stands out in "
        f"{quiet} that do not. Among networks not used to set the limit, none stands out in {silent} that compose, and "
        f"one does in {loud} that do not or only partly.",
    ])  # fmt: skip


FILES = ("networks.csv", "planted.csv")


def main() -> None:
    """Measure, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path)
    words = parser.parse_args()
    if words.table is not None:
        print(tables(words.table))
        return
    words.out.mkdir(parents=True, exist_ok=True)
    for name, rows in zip(FILES, (trained(words.store), planted()), strict=True):
        rows.to_csv(words.out / name, index=False, float_format="%.6g")
    about = {
        "recombine": rc.__version__, "commit": git_commit(), "torch": torch.__version__, "machine": platform.machine(),
        "device": "cpu", "seeds": f"0 to {SEEDS - 1}",
    }  # fmt: skip
    (words.out / "provenance.json").write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
