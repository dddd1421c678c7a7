"""Train, measure and keep what some studies need. Kill it at any moment: the same call goes on to the same numbers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from recombine.results import Results, question_digest
from recombine.specs import RunSpec
from recombine.store import Run, Store
from recombine.studies import Preset, Study
from recombine.sweep import Progress, train
from recombine.sweep.provenance import provenance
from recombine.training import resolve_device

Watch = Callable[[Progress], None]


def reproduce(
    studies: Sequence[Study],
    preset: Preset,
    store: Store | str | os.PathLike[str] | None,
    out: Path,
    *,
    device: str = "auto",
    members: int | None = None,
    processes: int | None = None,
    watch: Watch | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Results:
    """The studies' results in a folder; runs that several studies share are trained once."""
    began = time.perf_counter()
    place = resolve_device(device)
    results = Results(out)
    results.note(preset=preset.model_dump(mode="json"))
    store = store if isinstance(store, Store) else Store(store)
    processes = processes if place.type == "cpu" else None

    def trained(specs: Sequence[RunSpec]) -> dict[str, Run]:
        found = train(specs, store, device=device, members=members, processes=processes, watch=watch)
        return {run.key: run for run in found}

    runs = trained(_distinct([spec for study in studies for spec in study.specs(preset)]))
    own = {study.name: {spec.digest for spec in study.specs(preset)} for study in studies}
    while further := {study.name: found for study in studies if (found := _more(study, preset, runs, own))}:
        runs |= trained(_distinct([spec for specs in further.values() for spec in specs]))
        for name, specs in further.items():
            own[name] |= {spec.digest for spec in specs}
    for study in studies:
        mine = {key: runs[key] for key in own[study.name]}
        digest = question_digest(study.name, mine)
        if not results.holds(study.name, digest):
            start = time.perf_counter()
            measured = study.measure(study.trials(preset, place, mine))
            took = time.perf_counter() - start
            results.save(study.name, measured.assign_attrs(_source(place, preset, len(mine), took)), digest)
            say(f"measured {study.name} in {took:.1f} s")
    _note(results, runs, place, preset, time.perf_counter() - began)
    return results


def _distinct(specs: Sequence[RunSpec]) -> list[RunSpec]:
    return list({spec.digest: spec for spec in specs}.values())


def _more(study: Study, preset: Preset, runs: dict[str, Run], own: dict[str, set[str]]) -> list[RunSpec]:
    return study.more(preset, {key: runs[key] for key in own[study.name]})


def _source(place: torch.device, preset: Preset, networks: int, seconds: float) -> dict[str, Any]:
    """Where a Dataset came from, for its attributes."""
    facts = {name: str(value) for name, value in provenance(place, preset.precision).items()}
    return {**facts, "networks": networks, "measuring_seconds": round(seconds, 2)}


def _note(results: Results, runs: dict[str, Run], place: torch.device, preset: Preset, wall: float) -> None:
    """What was run for this folder so far; a run's seconds are shared among the members of its program."""
    own = {key: run.result["provenance"] for key, run in runs.items()}
    seconds = {key: float(p["seconds"]) / max(1, int(p["members_together"])) for key, p in own.items()}
    every = results.note_runs(seconds)
    here = provenance(place, preset.precision)
    commits = {str(results.dataset(name).attrs.get("commit", here["commit"])) for name in results.studies}
    results.note(
        runs=len(every),
        diverged=sum(run.status != "done" for run in runs.values()),
        training_seconds=round(sum(every.values()), 1),
        measuring_seconds=round(sum(results.dataset(n).attrs.get("measuring_seconds", 0) for n in results.studies), 1),
        wall_seconds=round(results.provenance.get("wall_seconds", 0.0) + wall, 1),
        **{**here, "commit": ", ".join(sorted(commits)) if commits else here["commit"]},
    )
