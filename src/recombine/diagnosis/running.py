"""How somebody's module is run: left exactly as it was, differentiable where it can be, its rows as they need it.

The same few rows are run twice, and each of them alone. A module that draws random numbers in evaluation mode is run a
row at a time with the same random numbers for every row, which makes it one function. A module whose outputs depend on
other examples in the batch (batch statistics, a softmax over the batch) is run a row at a time; where it takes no
single row, the whole grid is one batch.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.amp.autocast_mode import is_autocast_available
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parallel import DistributedDataParallel

from recombine.diagnosis.hooks import (
    MODULE_OUTPUT,
    OUTPUT,
    Forward,
    Layout,
    activations,
    module_reader,
    output_rows,
    stage_name,
    without_autocast,
)
from recombine.diagnosis.stages import module_parts, spread
from recombine.errors import InvalidValue, listed
from recombine.metrics.stages import FEWEST, Encode, Reader, Tap, flat, stage_sizes

SHARDED = ("DTensor", "FlatParameter")
"""Parameters of which each process has a part."""
ROWS_AT_ONCE = 64
"""Rows that a module is given at a time where nothing says how large they are."""
SEED = 0
"""Of the random numbers that every row is run with where a module draws some."""


# -- contexts ----------------------------------------------------------------------------------------------------------


def uncompiled(module: nn.Module) -> nn.Module:
    """The module that `torch.compile` wrapped, or the module itself."""
    inner = getattr(module, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else module


def unwrapped(module: nn.Module) -> nn.Module:
    """The module inside `torch.compile`, `DistributedDataParallel` and `DataParallel`, in any order."""
    while True:
        inner = module.module if isinstance(module, (DistributedDataParallel, nn.DataParallel)) else uncompiled(module)
        if inner is module:
            return module
        module = inner


def refuse_unfinished(module: nn.Module) -> None:
    """Refuse lazy layers, which running would give their shape for good, and weights that are sharded."""
    for name, part in module.named_modules():
        if isinstance(part, LazyModuleMixin) and part.has_uninitialized_params():  # type: ignore[misc]
            allowed = "a module whose lazy layers have their shapes: run it once on an input of yours"
            raise InvalidValue("module", f"{type(part).__name__} {name}".strip(), allowed)
    for name, weight in module.named_parameters():
        if type(weight).__name__ in SHARDED:
            raise InvalidValue("module", name, "a module whose weights are whole in this process, not sharded (FSDP)")


@contextmanager
def as_called(module: nn.Module, device: torch.device) -> Iterator[Forward]:
    """A function that runs the module under the caller's autocast; outside it measurements have full precision.

    Inference mode, which has no forward-mode derivatives, is left for the time.
    """
    kind = device.type
    enabled = is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    dtype = torch.get_autocast_dtype(kind) if enabled else None

    def forward(inputs: Tensor) -> object:
        with torch.autocast(kind, dtype=dtype):
            return module(inputs)

    with torch.inference_mode(False), without_autocast(kind):
        yield forward if enabled else module


@contextmanager
def undisturbed(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; everything as it was afterwards."""
    parts = list(module.modules())
    flags = [part.training for part in parts]
    contents = [(buffer, buffer.clone()) for buffer in module.buffers()]
    attributes = [
        (held, dict(held))
        for part in parts if not isinstance(part, torch.jit.ScriptModule)  # which keeps its state out of reach
        for held in (part._parameters, part._buffers, part._modules, part.__dict__)
    ]  # fmt: skip
    tensors = (*module.parameters(), *module.buffers())
    devices = sorted({tensor.device.index or 0 for tensor in tensors if tensor.device.type == "cuda"})
    own_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=devices):
        with suppress(NotImplementedError):  # an exported program keeps the mode that it was exported in
            module.eval()
        try:
            yield
        finally:
            random.setstate(own_state)
            np.random.set_state(numpy_state)  # noqa: NPY002
            for part, flag in zip(parts, flags, strict=True):
                part.training = flag
            for held, before in attributes:
                if list(held) != list(before) or any(held[name] is not value for name, value in before.items()):
                    held.clear()
                    held.update(before)
            for buffer, content in contents:
                if not torch.equal(buffer, content):
                    buffer.data.copy_(content)


@contextmanager
def differentiable(module: nn.Module) -> Iterator[None]:
    """Without compiled code and the fused kernels that have no forward-mode derivative."""
    recurrent = any(isinstance(part, nn.RNNBase) for part in module.modules())
    fast, onednn = torch.backends.mha.get_fastpath_enabled(), torch.backends.mkldnn.enabled
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with ExitStack() as stack:
            if "torch._dynamo" in sys.modules:  # whoever compiled something has loaded it; loading takes seconds
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            if recurrent:
                # not by `mkldnn.flags`, which sets TF32 as well, and warns where there is none
                torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
                stack.enter_context(torch.backends.cudnn.flags(enabled=False))
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        torch.backends.mkldnn.enabled = onednn


# -- rows --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """How rows are run: together in batches of any size, each alone, or the whole grid as one batch."""

    how: Literal["together", "alone", "whole"] = "together"
    seeded: bool = False
    notes: tuple[str, ...] = ()

    def reader(self, reader: Reader) -> Reader:
        """The reader, with rows run in this way."""
        if self.how != "alone":
            return reader

        def read(values: Tensor, tap: Tap) -> None:
            stages: dict[str, list[Tensor]] = {}
            for row in values.split(1):
                if self.seeded:
                    _seed(row.device)
                # a later layer may work in place
                reader(row, lambda name, activation: stages.setdefault(name, []).append(activation.clone()))
            for name, parts in stages.items():
                tap(name, torch.cat(parts))

        return read


def _seed(device: torch.device) -> None:
    """Start the generators again that a module on a device draws from; `torch.manual_seed` is slow, as it knows all."""
    torch.default_generator.manual_seed(SEED)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(SEED)


@dataclass(frozen=True)
class Runner:
    """A module, the reader of its stages, and what must be known about both."""

    module: nn.Module
    forward: Forward
    reader: Reader
    rows: Rows
    layout: Layout
    """Of the outputs."""
    memory: int
    epsilon: float
    """Rounding of the coarsest numbers in the module."""
    notes: list[str]

    @torch.no_grad()
    def outputs(self, inputs: Tensor) -> Tensor:
        """The `(row, feature)` outputs for some inputs, rows run in the way that they need."""
        outputs = []
        for part in inputs.split(1 if self.rows.how == "alone" else ROWS_AT_ONCE):
            if self.rows.seeded:
                _seed(part.device)
            returned = self.forward(part.clone())
            outputs.append(flat(output_rows(self.module, returned, self.layout, len(part))))
        return torch.cat(outputs)


def prepare(
    module: nn.Module, forward: Forward, encode: Encode, points: Tensor, stages: Sequence[str] | None, memory: int
) -> Runner:
    """The module with its stages chosen and its rows looked at."""
    names, layouts, part_notes, epsilon = module_parts(module, forward, encode, points, stages)
    plain = module_reader(module, encode, names, layouts, forward)
    # how much two runs of the same rows may differ, as a share of a stage's largest number
    tolerance = max(epsilon**0.5, 1e-3 if points.device.type == "cuda" else 0.0)
    five = spread(points, 5)
    rows = row_treatment(plain, five[[1, 0, 4]], five[[1, 2, 3]], type(module).__name__, tolerance)
    if stages is None and names:  # a last stage that is the output itself is none
        few = activations(plain, points[:FEWEST])
        names = names[:-1] if torch.equal(few[stage_name(names[-1])], few[OUTPUT]) else names
    reader = rows.reader(module_reader(module, encode, names, layouts, forward))
    if rows.how == "whole":
        needed = 4 * len(points) * 2 * sum(stage_sizes(reader, points).values())
        if needed > memory:
            allowed = f"at least {needed} for this module, which takes the grid as one batch"
            raise InvalidValue("memory", memory, allowed)
        memory = needed + 1  # a budget in which the grid is one batch
    layout, notes = layouts.get(MODULE_OUTPUT, Layout()), [*rows.notes, *part_notes]
    return Runner(module, forward, reader, rows, layout, memory, epsilon, notes)


def row_treatment(reader: Reader, few: Tensor, others: Tensor, module: str, tolerance: float) -> Rows:
    """How the rows of a module have to be run; `few` and `others` are points that share the first one."""
    together = activations(reader, few)
    if changing := _difference(together, activations(reader, few), tolerance):
        rows = Rows("alone", seeded=True, notes=(
            f"outputs are random in evaluation mode (from {changing} on): each row was run alone, all with the same "
            "random numbers",
        ))  # fmt: skip
        again = [_tried(rows.reader(reader), few) for _ in range(2)]
        if again[0] is None or again[1] is None or _difference(again[0], again[1], tolerance):
            allowed = "a module that gives the same outputs again for the same inputs, at least under one seed"
            raise InvalidValue("module", module, f"{allowed} ({changing} changes)")
        return rows
    alone = _tried(Rows("alone").reader(reader), few)
    if alone is not None:
        meeting = _difference(together, alone, tolerance)
        notes = [f"rows of a batch meet (from {meeting} on): each row was run alone"]
        if constant := [name for name in alone if _constant(alone[name]) and not _constant(together[name])]:
            notes.append(f"constant when rows are run alone: {listed(constant)}")
        return Rows("alone", notes=tuple(notes)) if meeting else Rows()
    elsewhere = {name: stage[:1] for name, stage in activations(reader, others).items()}
    meeting = _difference({name: stage[:1] for name, stage in together.items()}, elsewhere, tolerance)
    note = f"rows of a batch meet (from {meeting} on) and none can be run alone: the grid was run as one batch"
    return Rows("whole", notes=(note,)) if meeting else Rows()


def _tried(reader: Reader, values: Tensor) -> dict[str, Tensor] | None:
    """Activations, or none where the module cannot run such a batch."""
    try:
        return activations(reader, values)
    except Exception:
        return None


def _constant(stage: Tensor) -> bool:
    return bool((stage == stage[:1]).all())


def _difference(one: dict[str, Tensor], other: dict[str, Tensor], tolerance: float) -> str | None:
    """The first stage that differs by more than rounding."""
    for name, stage in one.items():
        again = other.get(name)
        if again is None or again.shape != stage.shape:
            return name
        scale = stage.nan_to_num().abs().max() if stage.numel() else 0.0
        if not torch.allclose(stage, again, rtol=0.0, atol=float(tolerance * scale), equal_nan=True):
            return name
    return None
