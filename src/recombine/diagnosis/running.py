"""Run a user's module: batch examples in a way that it supports, check its derivatives, and restore its state.

A module that draws random numbers in evaluation mode is run one example at a time, with the same random numbers for
every example. A module whose outputs depend on other examples in the batch (batch statistics, a softmax over the batch)
is also run one example at a time; if it does not accept a single example, the whole grid is run as one batch.

Exact derivatives are used either for all stages or for none, so that stages are comparable. They are not used if torch
cannot compute them, if a stage varies across the grid although its exact metric is 0 (`detach`, numpy, inference mode,
integers), or if they contradict finite differences at a few points off the grid (`detach` in one branch,
straight-through estimators).
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from textwrap import shorten
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
    features,
    flat,
    metric_tensor,
    precision,
    stage_jacobians,
    stage_sizes,
)
from recombine.training.devices import arithmetic

SHARDED_TYPES = ("DTensor", "FlatParameter")
ROWS_AT_ONCE = 64
"""Batch size used when the memory per row is unknown."""
SEED = 0
"""Seed set before every row if the module draws random numbers."""
CHECKED = ((0.27, 0.61, 0.44), (0.72, 0.36, 0.58), (0.53, 0.19, 0.83))
"""Off-grid points where derivatives are checked, as fractions of factor ranges; codes may have kinks on the grid."""
MISMATCH = 0.02
"""Tolerated relative difference between a derivative and its finite-difference estimate, in addition to rounding."""
STEPS = (1.0, 1 / 8, 1 / 64)
"""Relative step sizes. A derivative must agree for one of them, since longer steps may cross kinks or whole periods."""
ROUNDING = 0.05
"""Largest relative rounding error at which a shorter step is still informative."""
UNCHECKED = "derivatives were not checked against finite differences: the module does not run between grid points"
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
        again = [_tried(rows.reader(stages.read), few) for _ in range(2)]
        if again[0] is None or again[1] is None or _difference(again[0], again[1], tolerance):
            required = f"a module whose outputs can be reproduced by seeding torch ({random_from} changes)"
            raise InvalidValue("module", type(stages.module).__name__, required)
        return rows
    alone = _tried(Rows("alone").reader(stages.read), few)
    if alone is not None:
        mixed_from = _difference(together, alone, tolerance)
        notes = [f"{MIXED} (from {mixed_from} on): each example was run alone"]
        if constant := [name for name in alone if _constant(alone[name]) and not _constant(together[name])]:
            notes.append(f"constant when examples are run alone: {listed(constant)}")
        return Rows("alone", notes=tuple(notes)) if mixed_from else Rows()
    elsewhere = {name: stage[:1] for name, stage in activations(stages.read, others).items()}
    mixed_from = _difference({name: stage[:1] for name, stage in together.items()}, elsewhere, tolerance)
    note = f"{MIXED} (from {mixed_from} on) and none can be run alone: the grid was run as one batch"
    return Rows("whole", notes=(note,)) if mixed_from else Rows()


def _tried(reader: Reader, values: Tensor) -> dict[str, Tensor] | None:
    """Return the activations, or None if the module cannot run this batch."""
    try:
        return activations(reader, values)
    except Exception as error:  # a user's module may raise anything
        if _out_of_memory(error):
            raise
        return None


def _out_of_memory(error: Exception) -> bool:
    """Return whether the error means out of memory; on the CPU, torch raises a plain RuntimeError."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "DefaultCPUAllocator" in str(error)


def _constant(stage: Tensor) -> bool:
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


@dataclass(frozen=True)
class Geometry:
    """Exact metric tensors by stage for each sub-grid, or None and the reason for using finite differences."""

    metrics: list[dict[str, Tensor]] | None
    reason: str = ""
    notes: tuple[str, ...] = ()


def exact_geometry(runner: Runner, parts: Sequence[Tensor]) -> Geometry:
    """Return the exact metric tensors of all stages on each sub-grid, or the reason why they are unreliable."""
    factors = runner.subject.grid.factors
    low, high = torch.tensor([(factor.low, factor.high) for factor in factors], dtype=torch.float64).unbind(1)
    shares = torch.tensor([[row[k % len(row)] for k in range(len(factors))] for row in CHECKED])
    values = runner.values(low + (high - low) * shares)
    notes = (UNCHECKED,) if _tried(runner.reader, values) is None else ()  # an encoding may accept grid points only
    try:
        if not notes and (reason := _wrong_derivative(runner, values)):
            return Geometry(None, reason)
        tensors = [metric_tensor(runner.reader, points, memory=runner.memory, repeated=True) for points in parts]
    except InvalidValue as error:
        if error.field != "encoding":
            raise
        return Geometry(None, "since the encoding has no derivative")
    except Exception as error:  # the module ran without tangents, so its derivative is what fails
        if _out_of_memory(error):
            raise
        reason = shorten(str(error).partition(" because ")[0] or type(error).__name__, 100, placeholder=" …")
        return Geometry(None, f"since the module has no forward-mode derivative ({reason})")
    for points, metrics in zip(parts, tensors, strict=True):
        if infinite := [name for name, metric in metrics.items() if not bool(metric.isfinite().all())]:
            return Geometry(None, f"since the derivative is not finite at {infinite[0]}")
        zero = [name for name, metric in metrics.items() if not bool(metric.any())]
        for name, stage in features(runner.reader, points, memory=runner.memory) if zero else ():
            if name in zero and not _constant(stage):
                return Geometry(None, f"since the derivative is lost at {name}")
    return Geometry(tensors, notes=notes)


def _wrong_derivative(runner: Runner, values: Tensor) -> str | None:
    """Return what is wrong with the derivative at the first stage where finite differences contradict it, or None."""
    factors, epsilon = runner.subject.grid.factors, runner.stages.epsilon
    spacing = torch.tensor([factor.spacing for factor in factors], dtype=torch.float64).to(values)
    exact = {name: jacobian.double() for name, jacobian in stage_jacobians(runner.reader, values).items()}
    contradicted = {(name, k) for name in exact for k in range(len(factors))}
    for share in STEPS:
        # ε^(1/3) balances the rounding and truncation errors of a central difference
        step = spacing * epsilon ** (1 / 3) * share
        limit = math.inf if share == 1 else ROUNDING
        contradicted &= _contradicted(runner.reader, values, step, exact, epsilon, limit)
        if not contradicted:
            return None
    name = next(name for name in exact if any(name == wrong for wrong, _ in contradicted))
    if not bool(exact[name].any()):
        return f"since the derivative is lost at {name}"
    return f"since the derivative at {name} is not that of its activations"


def _contradicted(
    reader: Reader, values: Tensor, step: Tensor, exact: dict[str, Tensor], epsilon: float, rounding_limit: float
) -> set[tuple[str, int]]:
    """Return the stages and factors where central differences contradict the derivative or rounding errors dominate."""
    wrong = set()
    for k in range(values.shape[1]):
        offset = torch.zeros_like(values)
        offset[:, k] = step[k]
        ahead, behind = activations(reader, values + offset), activations(reader, values - offset)
        coarse = float(values[:, k].abs().max() / step[k]) * epsilon
        for name, stage in ahead.items():
            differences, derivative = (stage - behind[name]) / (2 * float(step[k])), exact[name][..., k]
            error = float((differences - derivative).norm())
            size = max(float(differences.norm()), float(derivative.norm()))
            rounding = coarse * size + 4 * epsilon * float(stage.norm()) / float(step[k])
            if error > MISMATCH * size + rounding or rounding > rounding_limit * size:
                wrong.add((name, k))
    return wrong
