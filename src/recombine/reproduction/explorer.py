"""Trained decoders for a report's explorer: chosen from a store, and kept in the results folder.

One file of the folder holds them all, so that a report can be written again without the store. Large weights are kept
in 65535 equal steps, half the size of float32, as far as that moves no output by more than `TOLERANCE`; float16 would
move them several times as far.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recombine.errors import InvalidValue
from recombine.files import parsed_json
from recombine.reproduction.preset import Preset
from recombine.reproduction.results import EXPLORER, Results
from recombine.specs import RunSpec
from recombine.store import Run, Store
from recombine.store.run import pack, unpack

if TYPE_CHECKING:
    from recombine.decoders import StagedDecoder
    from recombine.reproduction.paper import Paper

LARGEST = 6_000_000
"""Bytes of the decoders of a folder."""
TOLERANCE = 8e-5
"""How far kept weights may move an output."""
POINTS = 200
"""Of the grid, at which that is looked at."""
LARGE = 4096
"""Numbers of a tensor that is worth rounding."""
NONE = "–"
"""Value of a label that a decoder does not have."""
STEPS = 32767
"""On either side of 0."""


@dataclass(frozen=True)
class LabelledSpec:
    """A decoder that a study trains, as an explorer calls it."""

    study: str
    spec: RunSpec
    """Of any seed."""
    labels: Mapping[str, str]
    """What it is, by what a reader can switch, as `{"code": "bump", "depth": "4"}`."""


@dataclass(frozen=True)
class DecoderChoice:
    """Which decoders an explorer has."""

    decoders: Callable[[Any], list[LabelledSpec]]
    """Of a preset, the most telling first: where not all fit into a folder, later ones are left out."""
    learnt: Callable[[Run], bool]
    """Whether a network learnt what it was trained on: of each spec the first one that did is kept."""


@dataclass(frozen=True)
class TrainingPanel:
    """A small decoder that a page trains live, with isolated examples and without."""

    spec: RunSpec
    """A CNN whose task has two position factors, trained on each kept combination."""
    text: str
    """What is trained, as HTML that may contain {parameters}, {kept}, {held} and {isolated}, which are counts."""
    drawn: str
    """What every image shows, as "disk"."""
    isolated: str
    """What the examples of single factors are called."""
    filled: float
    """Accuracy on held-out combinations from which the panel says that the decoder fills the hold-out."""
    failed: float
    """Accuracy up to which the panel says that it fails."""


@dataclass(frozen=True)
class KeptDecoder:
    """A trained decoder of a results folder."""

    study: str
    key: str
    """Of the run."""
    spec: RunSpec
    labels: Mapping[str, str]
    weights: Mapping[str, np.ndarray]
    """As they are kept: int16 numbers count `scales`."""
    scales: Mapping[str, float]

    @property
    def name(self) -> str:
        """Its labels in one line."""
        return " · ".join(f"{label} {value}" for label, value in self.labels.items() if value != NONE)

    @property
    def size(self) -> int:
        """Bytes of its weights."""
        return sum(array.nbytes for array in self.weights.values())

    def module(self) -> StagedDecoder:
        """The trained network."""
        import torch

        module, state = self.spec.module(), dict(self.weights)
        for name, scale in self.scales.items():
            state[name] = state[name].astype(np.float32) * np.float32(scale)
        module.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()})
        return module.eval()


def collect(results: Results, paper: Paper, preset: Preset, store: Store, say: Callable[[str], None]) -> None:
    """Keep the decoders of a paper's explorer in a results folder, as far as its studies trained them.

    What is kept there already and is not in the store stays. Where decoders are left out, a line says which.
    """
    if paper.explorer is None:
        return
    try:
        present, whole = {(own.study, own.key): own for own in kept_decoders(results)}, True
    except InvalidValue:  # damaged, and made again
        present, whole = {}, False
    chosen: list[KeptDecoder] = []
    left_out: list[str] = []
    for own in paper.explorer.decoders(preset):
        if own.study not in results.studies:
            continue
        specs = paper.studies[own.study].seeded(preset, own.spec)
        decoder = _chosen(own, specs, store, present, paper.explorer.learnt)
        if decoder is not None:
            same_grid = not chosen or decoder.spec.task.grid == chosen[0].spec.task.grid
            fits = same_grid and sum(kept.size for kept in chosen) + decoder.size <= LARGEST
            chosen += [decoder] if fits else []
            left_out += [] if fits else [decoder.name]
    same = [(own.key, own.labels) for own in chosen] == [(own.key, own.labels) for own in present.values()]
    if not (whole and same):
        results.digests.replace({EXPLORER: packed(chosen) if chosen else None})
    if left_out:
        say(f"not in the explorer, for their grid or with more than {LARGEST / 1e6:g} MB: {'; '.join(left_out)}")


def kept_decoders(results: Results) -> list[KeptDecoder]:
    """The decoders that a folder keeps."""
    content = results.decoders
    try:
        return [] if content is None else unpacked(content)
    except (ValueError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())[:80]
        raise InvalidValue("from", str(results.path), f"a folder with decoders of this edition ({reason})") from None


def _chosen(
    own: LabelledSpec,
    specs: Sequence[RunSpec],
    store: Store,
    present: Mapping[tuple[str, str], KeptDecoder],
    learnt: Callable[[Run], bool],
) -> KeptDecoder | None:
    """The first network of a spec that learnt, rounded; if the store has none, the one that is kept already."""
    for spec in specs:
        run = store.find(spec.digest)
        if run is not None and run.status == "done" and learnt(run):
            known = present.get((own.study, run.key))
            return known if known is not None and known.labels == own.labels else _rounded(own, run)
    return next((present[own.study, s.digest] for s in specs if (own.study, s.digest) in present), None)


def _rounded(own: LabelledSpec, run: Run) -> KeptDecoder:
    """A run's decoder in as few bytes as its outputs allow: all large tensors rounded, or as many as may be."""
    import torch

    weights = run.weights()
    sizes = {name: array.size for name, array in weights.items() if array.dtype == np.float32 and array.size >= LARGE}
    large = sorted(sizes, key=lambda name: -sizes[name])
    task = run.spec.task

    def kept(names: Iterable[str]) -> KeptDecoder:
        scales = {name: float(np.float32(np.abs(weights[name]).max() / STEPS)) or 1.0 for name in names}
        steps = {name: np.rint(weights[name] / np.float64(scale)).astype(np.int16) for name, scale in scales.items()}
        return KeptDecoder(own.study, run.key, run.spec, own.labels, {**weights, **steps}, scales)

    with torch.no_grad():
        points = torch.linspace(0, task.grid.size - 1, min(POINTS, task.grid.size)).long()
        inputs = task.codes(task.grid.rows(points)).float().split(64)
        right = [run.module()(part) for part in inputs]

        def fits(names: Iterable[str]) -> bool:
            module = kept(names).module()
            return max(float((module(x) - y).abs().max()) for x, y in zip(inputs, right, strict=True)) <= TOLERANCE

        chosen = large if fits(large) else []
        for name in large if not chosen else ():
            chosen = [*chosen, name] if fits([*chosen, name]) else chosen
    return kept(chosen)


def packed(decoders: Iterable[KeptDecoder]) -> bytes:
    """Decoders as safetensors, with what they are as JSON beside."""
    records: list[dict[str, Any]] = []
    tensors: dict[str, np.ndarray] = {}
    for number, own in enumerate(decoders):
        record = {"study": own.study, "key": own.key, "spec": parsed_json(own.spec.to_json())}
        records.append(record | {"labels": dict(own.labels), "scales": dict(own.scales)})
        tensors |= {f"{number}/{name}": array for name, array in own.weights.items()}
    return pack(tensors, {"decoders": json.dumps(records, sort_keys=True)})


def unpacked(content: bytes) -> list[KeptDecoder]:
    """The decoders that `packed` packed."""
    length = int.from_bytes(content[:8], "little")
    records = parsed_json(parsed_json(content[8 : 8 + length])["__metadata__"]["decoders"])
    weights: list[dict[str, np.ndarray]] = [{} for _ in records]
    for path, array in unpack(content).items():
        number, _, name = path.partition("/")
        weights[int(number)][name] = array
    return [
        KeptDecoder(r["study"], r["key"], RunSpec.from_json(json.dumps(r["spec"])), r["labels"], own, r["scales"])
        for r, own in zip(records, weights, strict=True)
    ]
