"""Train and measure studies. Repeating an interrupted call resumes it and gives the same numbers.

A folder contains the results of one preset, of which studies may have different seeds. A call with another preset is
rejected if the folder would still contain Datasets measured with different settings. Apart from criteria, nothing is
written before the first Dataset.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from recombine.errors import InvalidValue, StoreError, listed
from recombine.files import require_folder
from recombine.manifest import LIST, remove_temporaries
from recombine.reproduction.explorer import collect
from recombine.reproduction.forks import in_forks
from recombine.reproduction.paper import Paper
from recombine.reproduction.preset import Preset
from recombine.reproduction.results import EDITION, NOTES, READS, RUNS, SETTINGS, Results
from recombine.reproduction.study import Study
from recombine.store import Run, Store
from recombine.store.run import ARRAYS, WEIGHTS
from recombine.sweep import train
from recombine.sweep.executors import checked_hardware
from recombine.sweep.group import git_commit, provenance
from recombine.sweep.progress import Say, Watch
from recombine.training.devices import arithmetic, resolve_device

if TYPE_CHECKING:
    import xarray


def reproduce(
    studies: Iterable[Study[Any]] | Study[Any],
    preset: Preset,
    store: Store | str | os.PathLike[str] | None,
    out: Path | str,
    *,
    device: str = "auto",
    members: int | None = None,
    processes: int | None = None,
    scheduler: Any = None,
    watch: Watch | None = None,
    say: Say = lambda line: None,
    paper: Paper | None = None,
    overwrite: bool = False,
) -> Results:
    """Train and measure studies and write their results to a folder; shared runs are trained only once.

    Parameters
    ----------
    studies
        The studies to run.
    preset
        Their settings.
    store
        Directory of runs; completed runs are loaded from it.
    out
        Folder to which the results are written.
    device
        Device for training and measuring.
    members
        Maximum number of networks trained together on a GPU.
    processes
        Number of single-threaded processes on a CPU, for training and measuring.
    scheduler
        Scheduler of the Dask cluster to train on, as in `recombine.train`; measurements are made locally.
    watch
        Called with the training progress.
    say
        Called with a line of text about each step.
    paper
        If given, the criteria of its claims are registered in the folder before training, and the decoders for its
        explorer are copied to the folder afterwards.
    overwrite
        Whether `out` may be a folder of other files, some of which may be overwritten.

    Returns
    -------
    Results
        The folder.

    Examples
    --------
    >>> import recombine as rc
    >>> from tempfile import TemporaryDirectory
    >>> tiny = rc.PRESETS["quick"].replace(seeds=1, extra_seeds=1, size=8, width=4, samples=20, steps=2)
    >>> with TemporaryDirectory() as folder:
    ...     results = rc.reproduce(rc.STUDIES["encoder"], tiny, f"{folder}/runs", f"{folder}/report", device="cpu")
    ...     data = results.dataset("encoder").load()
    >>> data["encoding"].values.tolist(), data.sizes["seed"]
    (['bump', 'rate'], 1)
    """
    studies = [studies] if isinstance(studies, Study) else list(studies)
    for study in studies:
        if not isinstance(preset, study.settings):
            raise InvalidValue("preset", getattr(preset, "name", preset), f"one with the settings of {study.name}")
    began = time.perf_counter()
    resolved = resolve_device(device if scheduler is None or device == "cpu" else "auto")
    results = Results(out)
    require_folder(results.path, "out", overwrite)  # fails now rather than after an hour of training
    replaced = _replaced(results, studies, preset)
    if scheduler is None and resolved.type != "cpu":
        processes = None
    further = {study.name: study.specs(preset) for study in studies}
    first = [spec for own in further.values() for spec in own]
    checked_hardware(first, store, device, members, processes, scheduler)
    remove_temporaries(results.path)
    _forget_damaged(results, studies, say)
    all_replaced = bool(replaced) and set(replaced) == set(results.studies)
    spent = 0.0 if all_replaced else float(results.noted.get("wall_seconds", 0.0))
    store = store if isinstance(store, Store) else Store(store)
    if paper is not None:
        started = [own.name for own in studies if any(spec.digest in store for spec in own.specs(preset))]
        register(results, paper, [study.name for study in studies], preset, started)

    runs: dict[str, Run] = {}
    keys: dict[str, set[str]] = {study.name: set() for study in studies}
    while any(further.values()):  # until no study requests more
        specs = list({spec.digest: spec for own in further.values() for spec in own}.values())
        trained = train(
            specs, store, device=device, members=members, processes=processes, watch=watch, scheduler=scheduler, say=say
        )  # fmt: skip
        runs |= {run.key: run for run in trained}
        for study in studies:
            keys[study.name] |= {spec.digest for spec in further[study.name]}
            further[study.name] = study.more(preset, {key: runs[key] for key in keys[study.name]})
    own = {study.name: {key: runs[key] for key in keys[study.name]} for study in studies}
    prints = {study.name: _fingerprint(study, preset, own[study.name]) for study in studies}
    measured = {
        study.name: partial(_measured, study, preset, resolved, own[study.name])
        for study in studies
        if not results.holds(study.name, prints[study.name])
    }
    if measured and (processes or 1) > 1:
        import_module("torch._dynamo")  # as the first derivative does, in seconds: here instead of in every fork
    with closing(in_forks(measured, processes or 1)) as finished:
        for name, dataset in finished:
            results.remove(replaced)
            results.save(name, dataset, prints[name])
            replaced = []
            say(f"measured {name} in {dataset.attrs['measuring_seconds']:.1f} s")
            results.note_runs(name, list(own[name].values()))
            results.note(wall_seconds=round(spent + time.perf_counter() - began, 1))
    for name in own.keys() - measured.keys():
        results.note_runs(name, list(own[name].values()))
    results.note(wall_seconds=round(spent + time.perf_counter() - began, 1))
    if paper is not None:
        collect(results, paper, preset, store, say)
    return results


def register(
    results: Results, paper: Paper, studies: Collection[str], preset: Preset, started: Collection[str] = ()
) -> list[str]:
    """Register the criteria of claims that have no data yet, and return their names; leave the others as they are.

    A claim has data if one of its studies has `started` or has a current Dataset. The Dataset of one of these `studies`
    is not current if it has other seeds than the preset, since it will be replaced.
    """
    known = results.criteria
    studied = set(started)
    for name in results.studies:
        with suppress(InvalidValue):  # damaged
            attributes = results.attributes(name)
            replaced = json.loads(attributes.get(SETTINGS, "{}")).get("first_seed") != preset.first_seed
            is_current = name in paper.studies and attributes.get(EDITION, 1) == paper.studies[name].version
            if is_current and not (replaced and name in studies):
                studied.add(name)
    if known is None and studied:
        return []
    fresh = [claim for claim in paper.claims.values() if not studied & {*claim.studies}]
    updated = {name: own for name, own in (known or {}).items() if name in paper.claims}
    now = {"date": datetime.now(UTC).date().isoformat(), "commit": git_commit()}
    for claim in fresh:
        records = claim.records(paper.versions)
        if updated.get(claim.name, {}).get("records") != records:
            updated[claim.name] = {**now, "records": records}
    if updated and updated != known:
        results.register(updated)
    return [claim.name for claim in fresh]


def _fingerprint(study: Study[Any], preset: Preset, runs: Mapping[str, Run]) -> str:
    """Return a digest of everything that a study's Dataset depends on.

    Versions are declared rather than hashed from the source, so that editing a comment or another study does not
    invalidate it.
    """
    contents = {}
    for key, run in runs.items():
        try:
            digests = run.digests()
        except ValueError as error:  # damaged after loading
            raise StoreError(f"store must contain intact runs, got {str(run.path)!r} ({error})") from None
        contents[key] = f"{digests[WEIGHTS]} {digests[ARRAYS]} {run.status}"
    own = study.own_settings(preset.model_dump(mode="json"))
    basis = json.dumps([study.name, contents, own, study.versions, sorted(study.optional_tools())], sort_keys=True)
    return hashlib.sha256(basis.encode()).hexdigest()[:20]


def _measured(study: Study[Any], preset: Preset, device: torch.device, runs: Mapping[str, Run]) -> xarray.Dataset:
    """Return a study's Dataset with its provenance."""
    start = time.perf_counter()
    with arithmetic("float32"):
        dataset = study.measure(study.trials(preset, device, runs))
    seconds = time.perf_counter() - start
    return dataset.assign_attrs({
        **{name: str(value) for name, value in provenance(device, preset.precision).items()},
        SETTINGS: preset.to_json(), "networks": len(runs), "measuring_seconds": round(seconds, 2),
        READS: json.dumps(list(study.own_settings(preset.model_dump(mode="json")))), EDITION: study.version,
    })  # fmt: skip


def _replaced(results: Results, studies: Sequence[Study[Any]], preset: Preset) -> list[str]:
    """Return the studies whose Datasets have another preset; all of them must be among the studies to be remeasured."""
    fields, redone = preset.model_dump(mode="json"), {study.name for study in studies}
    differing = []
    for name in results.studies:
        try:
            stored, read = results.settings(name), results.settings_read(name)
        except InvalidValue:  # damaged
            if name not in redone:
                raise
            stored, read = {}, []
        changed = [field for field in ("name", *read) if stored.get(field) != fields.get(field)]
        field = next((field for field in changed if name in redone or field != "first_seed"), None)
        if field is None:
            continue
        if name not in redone:
            allowed = f"{stored.get(field)!r} as for {name} in {str(results.path)!r} (or use another --out)"
            raise InvalidValue("preset" if field == "name" else field, fields.get(field), allowed)
        differing.append(name)
    return differing


def _forget_damaged(results: Results, studies: Sequence[Study[Any]], say: Say) -> None:
    """Report damaged files and delete those to be rewritten; raise an error if a remaining Dataset needs them."""
    left = [name for name in results.studies if name not in {study.name for study in studies}]
    for name, problem in results.damaged().items():
        if name == RUNS and left:
            allowed = f"an intact file ({problem}); to replace it, also reproduce {listed(left)}"
            raise InvalidValue("out", str(results.path / name), allowed)
        say(f"{name}: {problem}; {'everything' if name == LIST else 'it'} will be rewritten")
    for name in NOTES:
        if results.digests.is_present(name) and results.digests.problem(name):  # also if the manifest is missing
            results.digests.replace({name: None})
