"""Tune every remedy on every task, choose a configuration of each, and train the chosen ones with fresh seeds."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

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


def compete(
    protocol: Protocol, store: Store | str | os.PathLike[str] | None, device: torch.device, *, full: bool = False,
    seeds: int | None = None, **options: Any,
) -> Arena:  # fmt: skip
    """Tune what has no known configuration yet (with `full`, everything), and evaluate the chosen configurations."""
    chosen = {} if full else known_choices(protocol)
    log = tune(protocol, store, device, known=chosen, **options)
    for task, own in ({} if log is None else chosen_by(log)).items():
        chosen[task] = {**chosen.get(task, {}), **own}
    return Arena(evaluate(protocol, chosen, store, device, seeds, **options), chosen, log)


def known_choices(protocol: Protocol) -> dict[str, dict[str, int]]:
    """Return the configurations that the committed tuning chose, for tasks and remedies that are as they were then."""
    file = files("recombine.arena") / CHOSEN
    if not file.is_file():
        return {}
    own = parsed_json(file.read_bytes())
    return {
        name: {remedy: number for remedy, number in own.get(name, {}).items()
               if protocol.remedies.get(remedy) == PROTOCOL.remedies.get(remedy)}
        for name, task in protocol.tasks.items() if task == PROTOCOL.tasks.get(name)
    }  # fmt: skip


def tune(
    protocol: Protocol, store: Store | str | os.PathLike[str] | None, device: torch.device,
    known: Mapping[str, Mapping[str, int]] | None = None, **options: Any,
) -> pandas.DataFrame | None:  # fmt: skip
    """Train every configuration with every tuning seed, and return its R² on the second hold-out, kept and test data.

    Remedies in `known`, by task, are left out; if that leaves none, the log is None.

    The test score takes no part in the protocol's choice; it shows what an oracle would have chosen.
    """
    import pandas

    rows = []
    for name, task in protocol.tasks.items():
        wanted = [
            (remedy, number, spec)
            for remedy, own in protocol.remedies.items()
            if remedy not in (known or {}).get(name, {})
            for number, configuration in enumerate(own)
            for spec in configuration.apply(task.tuning).seeds(protocol.tuning_seeds)
        ]
        if not wanted:
            continue
        runs = train([spec for *_, spec in wanted], store, device=device.type, **options)
        inner, test = Scorer(task.tuning.task, device), Scorer(task.base.task, device)
        for (remedy, number, spec), run in zip(wanted, runs, strict=True):
            own = inner.of_run(run)
            tested = test.of_module(run.module().to(device))["ood_r2"]
            rows.append({
                "task": name, "remedy": remedy, "configuration": number, "seed": spec.seed,
                "settings": str(protocol.remedies[remedy][number]),
                "inner": own["ood_r2"], "id": own["id_r2"], "test": tested, "seconds": seconds_of(run),
            })  # fmt: skip
    return pandas.DataFrame(rows) if rows else None


def evaluate(
    protocol: Protocol, chosen: Mapping[str, Mapping[str, int]],
    store: Store | str | os.PathLike[str] | None, device: torch.device, seeds: int | None = None, **options: Any,
) -> xarray.Dataset:  # fmt: skip
    """Train the chosen configurations with fresh seeds (default: all of the protocol's), and return their scores.

    The Dataset has R² and accuracy by `task`, `remedy` and `seed`, the controls by `task`, and the settings chosen.
    """
    import xarray

    fresh, parts = protocol.seeds[:seeds], []
    for name, task in protocol.tasks.items():
        arms = {
            remedy: own[chosen[name][remedy]].apply(task.base)
            for remedy, own in protocol.remedies.items()
            if remedy in chosen.get(name, {})
        }
        whole = task.base.task.replace(region="whole")
        plain = protocol.remedies[PLAIN][chosen[name][PLAIN]].apply(task.base)
        specs = {**arms, CEILING: plain.replace(task=whole)}
        trained = iter(train([one for own in specs.values() for one in own.seeds(fresh)], store, device=device.type,
                             **options))  # fmt: skip
        runs = {remedy: [next(trained) for _ in fresh] for remedy in specs}
        parts.append(_dataset(name, specs, runs, Scorer(task.base.task, device)))
    data = xarray.concat(parts, "task", join="outer", fill_value={"settings": ""})
    return data.assign_attrs(protocol=protocol.digest, composes=protocol.composes)


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
    data["images"] = "remedy", [float(len(spec.task.training_values(spec.seed))) for spec in specs.values()]
    data["settings"] = "remedy", [own[0].spec.to_json() for own in runs.values()]
    data["control"] = "control", list(controls)
    data["controls"] = "control", list(controls.values())
    found = [run.result["provenance"] for own in runs.values() for run in own]
    data.attrs |= {name: ", ".join(sorted({str(one.get(name)) for one in found})) for name in PROVENANCE}
    return data.expand_dims(task=[task])
