"""Train, measure and keep what some studies need. Kill it at any moment: the same call goes on to the same numbers.

A folder holds results of one preset. A call with another one is refused, unless it makes everything there anew; and
nothing is written before there is a Dataset to write.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from recombine.checks import items
from recombine.digests import LIST
from recombine.errors import InvalidValue, listed
from recombine.questions import content_digest, dataset_fingerprint
from recombine.results import RUNS, SETTINGS, Results
from recombine.specs import RunSpec
from recombine.store import Run, Store
from recombine.studies import Preset, Study
from recombine.sweep import Progress, train
from recombine.sweep.provenance import provenance
from recombine.training import resolve_device

Watch = Callable[[Progress], None]


def reproduce(
    studies: Iterable[Study] | Study,
    preset: Preset,
    store: Store | str | os.PathLike[str] | None,
    out: Path | str,
    *,
    device: str = "auto",
    members: int | None = None,
    processes: int | None = None,
    watch: Watch | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Results:
    """The studies' results in a folder; runs that several studies share are trained once."""
    studies = items("studies", studies, Study, example="studies, as STUDIES.values()")
    if not isinstance(preset, Preset):
        raise InvalidValue("preset", preset, 'a Preset, as PRESETS["quick"]')
    began = time.perf_counter()
    place = resolve_device(device)
    results = Results(out)
    replaced = _replaced(results, studies, preset)
    results.make_place()
    _forget_damaged(results, studies, say)
    anew = bool(replaced) and set(replaced) == set(results.studies)
    spent = 0.0 if anew else float(results.noted.get("wall_seconds", 0.0))
    store = store if isinstance(store, Store) else Store(store)
    processes = processes if place.type == "cpu" else None

    def trained(specs: Sequence[RunSpec]) -> dict[str, Run]:
        found = train(specs, store, device=device, members=members, processes=processes, watch=watch)
        return {run.key: run for run in found}

    def clock() -> None:
        results.note(wall_seconds=round(spent + time.perf_counter() - began, 1))

    try:
        runs = trained(_distinct([spec for study in studies for spec in study.specs(preset)]))
        own = {study.name: {spec.digest for spec in study.specs(preset)} for study in studies}
        while further := {study.name: found for study in studies if (found := _more(study, preset, runs, own))}:
            runs |= trained(_distinct([spec for specs in further.values() for spec in specs]))
            for name, specs in further.items():
                own[name] |= {spec.digest for spec in specs}
        for study in studies:
            mine = {key: runs[key] for key in own[study.name]}
            contents = {key: content_digest(run) for key, run in mine.items()}
            digest = dataset_fingerprint(study.name, contents, preset.to_json(), study.optional_tools())
            if not results.holds(study.name, digest):
                start = time.perf_counter()
                measured = study.measure(study.trials(preset, place, mine))
                took = time.perf_counter() - start
                results.remove(replaced)
                replaced = []
                results.save(study.name, measured.assign_attrs(_source(place, preset, len(mine), took)), digest)
                say(f"measured {study.name} in {took:.1f} s")
            results.note_runs(study.name, list(mine.values()))
            clock()
    finally:  # time that ended in an interruption was spent too
        if results.studies and not replaced:
            clock()
    return results


def _replaced(results: Results, studies: Sequence[Study], preset: Preset) -> list[str]:
    """Datasets of another preset, all of which this call makes anew; refused if it would leave some beside its own."""
    wanted, redone = preset.model_dump(mode="json"), {study.name for study in studies}
    other = [name for name in results.studies if not _is_of(results, name, wanted, broken=name in redone)]
    if left := [name for name in other if name not in redone]:
        there = results.settings(left[0])
        where = f"the preset of {listed(left)} in {str(results.path)!r}, or another --out"
        if there is None:
            raise InvalidValue("out", str(results.path), f"another folder: the preset of {listed(left)} is not known")
        if there.get("name") != preset.name:
            raise InvalidValue("preset", preset.name, f"{there.get('name')!r}, {where}")
        field = next(name for name, value in wanted.items() if there.get(name) != value)
        raise InvalidValue(field, wanted[field], f"{there.get(field)!r}, {where}")
    return other


def _forget_damaged(results: Results, studies: Sequence[Study], say: Callable[[str], None]) -> None:
    """Say what is not as it was written: this call makes it again, and is refused if it cannot."""
    left = [name for name in results.studies if name not in {study.name for study in studies}]
    for name, problem in results.damaged().items():
        if name == RUNS and left:
            allowed = f"a whole file, or a call that makes {listed(left)} again too ({problem})"
            raise InvalidValue("out", str(results.path / name), allowed)
        say(f"{name}: {problem}; {'everything' if name == LIST else 'it'} is made again")
    results.forget_notes()


def _is_of(results: Results, study: str, settings: dict[str, Any], *, broken: bool) -> bool:
    """Whether a Dataset is of this preset; one that cannot be read is not, where that is no mistake."""
    try:
        return results.settings(study) == settings
    except InvalidValue:
        if broken:
            return False
        raise


def _distinct(specs: Sequence[RunSpec]) -> list[RunSpec]:
    return list({spec.digest: spec for spec in specs}.values())


def _more(study: Study, preset: Preset, runs: dict[str, Run], own: dict[str, set[str]]) -> list[RunSpec]:
    return study.more(preset, {key: runs[key] for key in own[study.name]})


def _source(place: torch.device, preset: Preset, networks: int, seconds: float) -> dict[str, Any]:
    """Where a Dataset came from, for its attributes."""
    facts = {name: str(value) for name, value in provenance(place, preset.precision).items()}
    return {**facts, SETTINGS: preset.to_json(), "networks": networks, "measuring_seconds": round(seconds, 2)}
