"""Tune every remedy on every task, choose a configuration of each, and train the chosen ones with fresh seeds."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from recombine.arena.protocol import CEILING, PLAIN, PROTOCOL, Protocol
from recombine.arena.result import Arena, chosen_by
from recombine.arena.scores import Scorer
from recombine.comparison import PROVENANCE, seconds_of
from recombine.files import parsed_json
from recombine.specs import RunSpec
from recombine.store import Run, Store
from recombine.sweep import train

if TYPE_CHECKING:
    import pandas
    import xarray

CHOSEN = "chosen.json"
"""Configurations chosen by the committed tuning."""
TESTED = 5000
"""Points at which the networks of tuning are tested, for the oracle's choice."""


def compete(
    protocol: Protocol, store: Store | str | os.PathLike[str] | None, device: torch.device, *, full: bool = False,
    seeds: int | None = None, **options: Any,
) -> Iterator[Arena]:  # fmt: skip
    """Yield the result on one task after another.

    What has no known configuration yet is tuned (with `full`, everything); then the chosen ones are evaluated.
    """
    for name in protocol.tasks:
        own = protocol.part([name])
        chosen = {} if full else known_choices(own)[name]
        log = tune(own, name, store, device, known=chosen, **options)
        chosen |= {} if log is None else chosen_by(log)[name]
        yield Arena(evaluate(own, name, chosen, store, device, seeds, **options), log)


def known_choices(protocol: Protocol) -> dict[str, dict[str, int]]:
    """Return the configurations that the committed tuning chose, for tasks and remedies that are as they were then."""
    file = files("recombine.arena") / CHOSEN
    own = parsed_json(file.read_bytes()) if file.is_file() else {}
    return {
        name: {remedy: number for remedy, number in own.get(name, {}).items()
               if protocol.remedies.get(remedy) == PROTOCOL.remedies.get(remedy) and task == PROTOCOL.tasks.get(name)}
        for name, task in protocol.tasks.items()
    }  # fmt: skip


def tune(
    protocol: Protocol, name: str, store: Store | str | os.PathLike[str] | None, device: torch.device,
    known: Collection[str] = (), **options: Any,
) -> pandas.DataFrame | None:  # fmt: skip
    """Train every configuration on a task with every tuning seed; return R² on the second hold-out, kept and test data.

    The test score takes no part in the protocol's choice; it shows what an oracle would have chosen. Known remedies are
    left out; if none remain, the log is None.
    """
    import pandas

    task = protocol.tasks[name]
    wanted = [
        (remedy, number, spec)
        for remedy, own in protocol.remedies.items()
        if remedy not in known
        for number, configuration in enumerate(own)
        for spec in configuration.apply(task.tuning).seeds(protocol.tuning_seeds)
    ]
    if not wanted:
        return None
    runs = train([spec for *_, spec in wanted], store, device=device.type, **options)
    inner, test = Scorer(task.tuning.task, device), Scorer(task.base.task, device, points=TESTED)
    rows = []
    for (remedy, number, spec), run in zip(wanted, runs, strict=True):
        scores, tested = inner.of_run(run), test.of_module(run.module().to(device))
        rows.append({
            "task": name, "remedy": remedy, "configuration": number, "seed": spec.seed,
            "settings": str(protocol.remedies[remedy][number]), "inner": scores["ood_r2"], "id": scores["id_r2"],
            "test": tested["ood_r2"], "seconds": seconds_of(run),
        })  # fmt: skip
    return pandas.DataFrame(rows)


def evaluate(
    protocol: Protocol, name: str, chosen: Mapping[str, int],
    store: Store | str | os.PathLike[str] | None, device: torch.device, seeds: int | None = None, **options: Any,
) -> xarray.Dataset:  # fmt: skip
    """Train the chosen configurations on a task with fresh seeds (default: all of the protocol's).

    The Dataset has R² and accuracy by `task`, `remedy` and `seed`, the numbers of the chosen configurations, and
    controls by `task`.
    """
    task, fresh = protocol.tasks[name], protocol.seeds[:seeds]
    specs = {remedy: protocol.remedies[remedy][number].apply(task.base) for remedy, number in chosen.items()}
    specs[CEILING] = specs[PLAIN].replace(task=task.base.task.replace(region="whole"))
    wanted = [spec for own in specs.values() for spec in own.seeds(fresh)]
    trained = iter(train(wanted, store, device=device.type, **options))
    runs = {remedy: [next(trained) for _ in fresh] for remedy in specs}
    data = _dataset(name, specs, runs, Scorer(task.base.task, device))
    data["configuration"] = "remedy", [float(chosen.get(remedy, np.nan)) for remedy in specs]
    data["configuration"] = data["configuration"].expand_dims(task=[name])
    return data.assign_attrs(composes=protocol.composes)


def _dataset(
    task: str, specs: Mapping[str, RunSpec], runs: Mapping[str, Sequence[Run]], scorer: Scorer
) -> xarray.Dataset:
    """Return the scores on one task, by remedy and seed, and its controls."""
    import xarray

    scored = {
        remedy: [scorer.of_run(run) | {"ood_accuracy": run.scores["ood_accuracy"], "seconds": seconds_of(run)}
                 for run in own]
        for remedy, own in runs.items()
    }  # fmt: skip
    untrained = scorer.of_module(specs[PLAIN].module().eval().to(scorer.evaluator.device))
    controls = {**scorer.controls(), "untrained": untrained["ood_r2"]}
    names = ("ood_r2", "id_r2", "ood_accuracy", "seconds")
    data = xarray.Dataset(
        {name: (("remedy", "seed"), [[one[name] for one in own] for own in scored.values()]) for name in names},
        {"remedy": list(specs), "seed": [run.spec.seed for run in runs[PLAIN]]},
    )
    data["images"] = "remedy", [float(spec.task.training_images(spec.seed)) for spec in specs.values()]
    data["settings"] = "remedy", [spec.model_dump_json(exclude={"seed"}) for spec in specs.values()]
    data["control"] = "control", list(controls)
    data["controls"] = "control", list(controls.values())
    provenances = [run.result["provenance"] for own in runs.values() for run in own]
    data.attrs |= {name: ", ".join(sorted({str(one.get(name)) for one in provenances})) for name in PROVENANCE}
    return data.expand_dims(task=[task])
