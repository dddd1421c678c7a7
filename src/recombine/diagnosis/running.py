"""Run a user's module: batch examples in a way that it supports, and restore its state.

A module that draws random numbers in evaluation mode is run one example at a time, with the same random numbers for
every example. A module whose outputs depend on other examples in the batch (batch statistics, a softmax over the batch)
is also run one example at a time; if it does not accept a single example, the whole grid is run as one batch.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.amp.autocast_mode import is_autocast_available
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parallel import DistributedDataParallel

from recombine.diagnosis.stages import (
    OUTPUT,
    Forward,
    ModuleStages,
    activations,
    module_stages,
    spread,
    stage_name,
    without_autocast,
)
from recombine.diagnosis.subject import Subject
from recombine.errors import InvalidValue, listed
from recombine.factors import FactorGrid
from recombine.metrics.stages import (
    FEWEST,
    Reader,
    Tap,
    chunks,
    flat,
    precision,
    stage_sizes,
)
from recombine.training.devices import arithmetic

SHARDED_TYPES = ("DTensor", "FlatParameter")
ROWS_AT_ONCE = 64
"""Batch size used when the memory per row is unknown."""
SEED = 0
"""Seed set before every row if the module draws random numbers."""
MIXED = "outputs depend on other examples in the batch"


def uncompiled(module: nn.Module) -> nn.Module:
    """Return the module inside `torch.compile`, or the module itself."""
    inner = getattr(module, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else module


def unwrapped(module: nn.Module) -> nn.Module:
    """Return the module inside `torch.compile`, `DistributedDataParallel` and `DataParallel`, nested in any order."""
    while True:
        inner = module.module if isinstance(module, (DistributedDataParallel, nn.DataParallel)) else uncompiled(module)
        if inner is module:
            return module
        module = inner


def refuse_unfinished(module: nn.Module) -> None:
    """Reject sharded weights and uninitialized lazy layers, whose shapes would be fixed by the first run."""
    for name, part in module.named_modules():
        if isinstance(part, LazyModuleMixin) and part.has_uninitialized_params():  # type: ignore[misc]
            required = "a module whose lazy layers are initialized: run it once on one of your inputs"
            raise InvalidValue("module", f"{type(part).__name__} {name}".strip(), required)
    for name, weight in module.named_parameters():
        if type(weight).__name__ in SHARDED_TYPES:
            raise InvalidValue("module", name, "a module with all its weights in this process, not sharded (FSDP)")


@contextmanager
def running(subject: Subject, grid: FactorGrid, stages: Sequence[str] | None, memory: int) -> Iterator[Runner]:
    """Yield a runner for a subject's module in evaluation mode; use points of `grid` to find out how to batch it."""
    module = uncompiled(subject.module)
    refuse_unfinished(module)
    weight = next((p for p in (*module.parameters(), *module.buffers())), torch.empty(0))
    device, dtype = weight.device, weight.dtype if weight.is_floating_point() else torch.float32

    def encode(values: Tensor) -> Tensor:
        inputs = subject.inputs(values).clone()  # the module may work in place
        return inputs.to(dtype) if inputs.is_floating_point() else inputs

    strict = arithmetic("float32")  # TF32 rounding would mask the effect of small steps
    call = partial(subject.call, module)
    with strict, _called_as_now(call, device) as forward, undisturbed(module), _differentiable(module):
        points = grid.points.to(device, precision(device)).clone()
        watched = module_stages(module, forward, encode, points, stages)
        # tolerated difference between two runs on the same rows, relative to the stage's largest activation
        tolerance = max(watched.epsilon**0.5, 1e-3 if device.type == "cuda" else 0.0)
        rows = _row_treatment(watched, spread(points, 5), tolerance)
        if stages is None and watched.names:  # the last stage may be the output itself
            few = activations(watched.read, points[:FEWEST])
            if torch.equal(few[stage_name(watched.names[-1])], few[OUTPUT]):
                watched.names.pop()
        if rows.how == "whole":
            needed = 4 * len(points) * 2 * sum(stage_sizes(watched.read, points).values())
            if needed > memory:
                required = f"at least {needed} for this module, which must run the grid as one batch"
                raise InvalidValue("memory", memory, required)
            memory = needed + 1  # enough for metrics to run the grid as one batch
        yield Runner(subject, watched, rows, memory, device)


@contextmanager
def _called_as_now(call: Forward, device: torch.device) -> Iterator[Forward]:
    """Yield a function that runs the module under the caller's autocast; metrics are computed in full precision."""
    kind = device.type
    enabled = is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    dtype = torch.get_autocast_dtype(kind) if enabled else None

    def forward(inputs: Tensor) -> object:
        with torch.autocast(kind, dtype=dtype):
            return call(inputs)

    # inference mode does not support forward-mode derivatives
    with torch.inference_mode(False), without_autocast(kind):
        yield forward if enabled else call


@contextmanager
def undisturbed(module: nn.Module) -> Iterator[None]:
    """Put the module in evaluation mode within the context; restore it and the random states afterwards."""
    parts = list(module.modules())
    flags = [part.training for part in parts]
    contents = [(buffer, buffer.clone()) for buffer in module.buffers()]
    attributes = [
        (held, dict(held))
        for part in parts if not isinstance(part, torch.jit.ScriptModule)  # its state is not accessible
        for held in (part._parameters, part._buffers, part._modules, part.__dict__)
    ]  # fmt: skip
    tensors = (*module.parameters(), *module.buffers())
    devices = sorted({tensor.device.index or 0 for tensor in tensors if tensor.device.type == "cuda"})
    own_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=devices):
        with suppress(NotImplementedError):  # an exported program keeps the mode in which it was exported
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
def _differentiable(module: nn.Module) -> Iterator[None]:
    """Disable compiled code and fused kernels that have no forward-mode derivative within the context."""
    recurrent = any(isinstance(part, nn.RNNBase) for part in module.modules())
    fast, onednn = torch.backends.mha.get_fastpath_enabled(), torch.backends.mkldnn.enabled
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with ExitStack() as stack:
            if "torch._dynamo" in sys.modules:  # loaded only if something was compiled; loading it takes seconds
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            if recurrent:
                # `mkldnn.flags` would also set TF32 and warn on machines that do not support it
                torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
                stack.enter_context(torch.backends.cudnn.flags(enabled=False))
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        torch.backends.mkldnn.enabled = onednn


@dataclass(frozen=True)
class Rows:
    """How to run rows: together in batches of any size, alone (one at a time), or the whole grid as one batch."""

    how: Literal["together", "alone", "whole"] = "together"
    seeded: bool = False
    notes: tuple[str, ...] = ()

    def reader(self, reader: Reader) -> Reader:
        """Return a reader that runs rows in this way."""
        if self.how != "alone":
            return reader

        def read(values: Tensor, tap: Tap) -> None:
            stages: dict[str, list[Tensor]] = {}
            for row in values.split(1):
                if self.seeded:
                    seed_generators(row.device)
                # copied, since a later layer may modify it in place
                reader(row, lambda name, activation: stages.setdefault(name, []).append(activation.clone()))
            for name, parts in stages.items():
                tap(name, torch.cat(parts))

        return read


def seed_generators(device: torch.device) -> None:
    """Seed the generators used by this device; `torch.manual_seed` is slow because it seeds those of all devices."""
    torch.default_generator.manual_seed(SEED)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(SEED)


@dataclass(frozen=True)
class Runner:
    """A subject's module, ready to run."""

    subject: Subject
    stages: ModuleStages
    rows: Rows
    memory: int
    device: torch.device

    @property
    def reader(self) -> Reader:
        """A reader of the module's stages."""
        return self.rows.reader(self.stages.read)

    def values(self, points: Tensor) -> Tensor:
        """Return factor values on the module's device, in the widest precision it supports."""
        return points.to(self.device, precision(self.device)).clone()

    @torch.no_grad()
    def outputs(self, inputs: Tensor) -> Tensor:
        """Return the `(row, feature)` outputs for encoded inputs."""
        alone, outputs = self.rows.how == "alone", []
        if len(inputs) == 1 and not alone:  # the module may drop the batch dimension of a single row
            return self.outputs(inputs.expand(FEWEST, *inputs.shape[1:]))[:1]
        for part in inputs.split(1) if alone else chunks(inputs, ROWS_AT_ONCE):
            if self.rows.seeded:
                seed_generators(part.device)
            returned = self.stages.forward(part.clone())
            outputs.append(flat(self.stages.output_rows(returned, len(part))))
        return torch.cat(outputs)


def _row_treatment(stages: ModuleStages, five: Tensor, tolerance: float) -> Rows:
    """Determine how the module's rows must be run by running batches drawn from five points."""
    few, others = five[[1, 0, 4]], five[[1, 2, 3]]  # two batches that share their first point
    together = activations(stages.read, few)
    if random_from := _difference(together, activations(stages.read, few), tolerance):
        rows = Rows("alone", seeded=True, notes=(
            f"outputs are random in evaluation mode (from {random_from} on): each example was run alone, all with the "
            "same random numbers",
        ))  # fmt: skip
        again = [tried(rows.reader(stages.read), few) for _ in range(2)]
        if again[0] is None or again[1] is None or _difference(again[0], again[1], tolerance):
            required = f"a module whose outputs can be reproduced by seeding torch ({random_from} changes)"
            raise InvalidValue("module", type(stages.module).__name__, required)
        return rows
    alone = tried(Rows("alone").reader(stages.read), few)
    if alone is not None:
        mixed_from = _difference(together, alone, tolerance)
        notes = [f"{MIXED} (from {mixed_from} on): each example was run alone"]
        if constant := [name for name in alone if is_constant(alone[name]) and not is_constant(together[name])]:
            notes.append(f"constant when examples are run alone: {listed(constant)}")
        return Rows("alone", notes=tuple(notes)) if mixed_from else Rows()
    elsewhere = {name: stage[:1] for name, stage in activations(stages.read, others).items()}
    mixed_from = _difference({name: stage[:1] for name, stage in together.items()}, elsewhere, tolerance)
    note = f"{MIXED} (from {mixed_from} on) and none can be run alone: the grid was run as one batch"
    return Rows("whole", notes=(note,)) if mixed_from else Rows()


def tried(reader: Reader, values: Tensor) -> dict[str, Tensor] | None:
    """Return the activations, or None if the module cannot run this batch."""
    try:
        return activations(reader, values)
    except Exception as error:  # a user's module may raise anything
        if out_of_memory(error):
            raise
        return None


def out_of_memory(error: Exception) -> bool:
    """Return whether the error means out of memory; on the CPU, torch raises a plain RuntimeError."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "DefaultCPUAllocator" in str(error)


def is_constant(stage: Tensor) -> bool:
    return bool((stage == stage[:1]).all())


def _difference(before: dict[str, Tensor], after: dict[str, Tensor], tolerance: float) -> str | None:
    """Return the first stage that differs by more than rounding error, or None."""
    for name, stage in before.items():
        again = after.get(name)
        if again is None or again.shape != stage.shape:
            return name
        scale = stage.nan_to_num().abs().max() if stage.numel() else 0.0
        if not torch.allclose(stage, again, rtol=0.0, atol=float(tolerance * scale), equal_nan=True):
            return name
    return None
