"""Trained decoders for a report's explorer, selected from a store and kept in a single file in the results folder.

Large tensors are quantised to 16-bit integers if this changes no output by more than `TOLERANCE`; float16 would change
outputs several times as much.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from recombine.errors import InvalidValue, reason_of
from recombine.files import parsed_json
from recombine.reproduction.live_decoders import LabelledSpec
from recombine.reproduction.paper import Paper
from recombine.reproduction.preset import Preset
from recombine.reproduction.results import EXPLORER, Results
from recombine.specs import RunSpec
from recombine.store import Run, Store
from recombine.store.names import pack, unpack

if TYPE_CHECKING:
    from recombine.decoders import StagedDecoder

LARGEST = 6_000_000  # maximum size of a folder's decoders in bytes
TOLERANCE = 8e-5  # largest change in an output due to quantisation
NONE = "–"  # value of a label that does not apply to a decoder
MEASURED = "measured/"  # prefix of names of arrays that are not weights
STEPS = 32767  # quantisation steps on either side of 0


@dataclass(frozen=True)
class KeptDecoder:
    """A trained decoder in a results folder."""

    study: str
    key: str
    """Key of the run."""
    spec: RunSpec
    labels: Mapping[str, str]
    weights: Mapping[str, np.ndarray]
    """Weights as stored; int16 tensors must be multiplied by their `scales`."""
    scales: Mapping[str, float]
    measured: Mapping[str, np.ndarray] = field(default_factory=dict)
    """What a page shows of it and takes long to measure."""

    @property
    def name(self) -> str:
        """The decoder's labels on one line."""
        return " · ".join(f"{label} {value}" for label, value in self.labels.items() if value != NONE)

    @property
    def size(self) -> int:
        """Size of the weights in bytes."""
        return sum(array.nbytes for array in self.weights.values())

    def module(self) -> StagedDecoder:
        """Return the trained network."""
        import torch

        module, state = self.spec.module(), dict(self.weights)
        for name, scale in self.scales.items():
            state[name] = state[name].astype(np.float32) * np.float32(scale)
        module.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()})
        return module.eval()


def collect(results: Results, paper: Paper, preset: Preset, store: Store, say: Callable[[str], None]) -> None:
    """Copy the decoders for a paper's explorer from a store to a results folder.

    Decoders in the folder that are not in the store are kept. `say` is called with the names of omitted decoders.
    """
    if paper.explorer is None:
        return
    try:
        present, intact = {(own.study, own.key): own for own in kept_decoders(results)}, True
    except InvalidValue:  # damaged, so the file is rewritten
        present, intact = {}, False
    chosen: list[KeptDecoder] = []
    left_out: list[str] = []
    for own in paper.explorer.decoders(preset):
        if own.study not in results.studies:
            continue
        specs = paper.studies[own.study].seeded(preset, own.spec)
        decoder = _chosen(own, specs, store, present, paper.explorer.learnt)
        if decoder is None:
            continue
        same_grid = not chosen or decoder.spec.task.grid == chosen[0].spec.task.grid
        if same_grid and sum(kept.size for kept in chosen) + decoder.size <= LARGEST:
            chosen.append(decoder)
        else:
            left_out.append(decoder.name)
    chosen = [own if own.measured else replace(own, measured=paper.explorer.measure(own)) for own in chosen]
    if not intact or [_identity(own) for own in chosen] != [_identity(own) for own in present.values()]:
        results.digests.replace({EXPLORER: packed(chosen) if chosen else None})
    if left_out:
        reason = f"another grid, or more than {LARGEST / 1e6:g} MB in total"
        say(f"left out of the explorer ({reason}): {'; '.join(left_out)}")


def _identity(own: KeptDecoder) -> tuple[str, Mapping[str, str], bool]:
    return own.key, own.labels, bool(own.measured)


def kept_decoders(results: Results) -> list[KeptDecoder]:
    """Return the decoders in a results folder."""
    content = results.decoders
    try:
        return [] if content is None else _unpacked(content)
    except (ValueError, KeyError, TypeError) as error:
        allowed = f"a folder with readable decoders ({reason_of(error)})"
        raise InvalidValue("from", str(results.path), allowed) from None


def _chosen(
    own: LabelledSpec,
    specs: Sequence[RunSpec],
    store: Store,
    present: Mapping[tuple[str, str], KeptDecoder],
    learnt: Callable[[Run], bool],
) -> KeptDecoder | None:
    """Return the quantised decoder of the first seed that learnt or, if the store has none, the folder's decoder."""
    for spec in specs:
        run = store.find(spec.digest)
        if run is not None and run.status == "done" and learnt(run):
            known = present.get((own.study, run.key))
            return known if known is not None and known.labels == own.labels else _quantised(own, run)
    return next((present[own.study, s.digest] for s in specs if (own.study, s.digest) in present), None)


def _quantised(own: LabelledSpec, run: Run) -> KeptDecoder:
    """Return a run's decoder with as many large tensors quantised as the tolerance allows."""
    import torch

    weights, task = run.weights(), run.spec.task
    sizes = {name: array.size for name, array in weights.items() if array.dtype == np.float32 and array.size >= 4096}
    large = sorted(sizes, key=lambda name: -sizes[name])

    def kept(names: Iterable[str]) -> KeptDecoder:
        scales = {name: float(np.float32(np.abs(weights[name]).max() / STEPS)) or 1.0 for name in names}
        steps = {name: np.rint(weights[name] / np.float64(scale)).astype(np.int16) for name, scale in scales.items()}
        return KeptDecoder(own.study, run.key, run.spec, own.labels, {**weights, **steps}, scales)

    with torch.no_grad():
        points = torch.linspace(0, task.grid.size - 1, min(200, task.grid.size)).long()
        inputs = task.codes(task.grid.rows(points)).float().split(64)
        expected = [run.module()(part) for part in inputs]

        def fits(names: Iterable[str]) -> bool:
            module = kept(names).module()
            return max(float((module(x) - y).abs().max()) for x, y in zip(inputs, expected, strict=True)) <= TOLERANCE

        if fits(large):
            return kept(large)
        chosen: list[str] = []
        for name in large:
            chosen += [name] if fits([*chosen, name]) else []
    return kept(chosen)


def packed(decoders: Iterable[KeptDecoder]) -> bytes:
    """Serialise decoders as safetensors, with their records as JSON in the header."""
    records: list[dict[str, Any]] = []
    tensors: dict[str, np.ndarray] = {}
    for number, own in enumerate(decoders):
        record = {"study": own.study, "key": own.key, "spec": parsed_json(own.spec.to_json())}
        records.append(record | {"labels": dict(own.labels), "scales": dict(own.scales)})
        tensors |= {f"{number}/{name}": array for name, array in own.weights.items()}
        tensors |= {f"{number}/{MEASURED}{name}": array for name, array in own.measured.items()}
    return pack(tensors, {"decoders": json.dumps(records, sort_keys=True)})


def _unpacked(content: bytes) -> list[KeptDecoder]:
    """Return the decoders serialised by `packed`."""
    length = int.from_bytes(content[:8], "little")  # length of the JSON header
    records = parsed_json(parsed_json(content[8 : 8 + length])["__metadata__"]["decoders"])
    arrays: list[dict[str, np.ndarray]] = [{} for _ in records]
    for path, array in unpack(content).items():
        number, _, name = path.partition("/")
        arrays[int(number)][name] = array
    return [
        KeptDecoder(
            r["study"], r["key"], RunSpec.from_json(json.dumps(r["spec"])), r["labels"],
            {name: array for name, array in own.items() if not name.startswith(MEASURED)}, r["scales"],
            {name.removeprefix(MEASURED): array for name, array in own.items() if name.startswith(MEASURED)},
        )
        for r, own in zip(records, arrays, strict=True)
    ]  # fmt: skip
