"""The training loop, and the number of members that fit on a GPU.

`fit` is a generator that yields between spans of steps, so that the caller can show progress, write checkpoints or
stop. The length of a span depends on timing but does not affect results. On a GPU, the whole step (batch selection,
forward, loss, penalties, backward, AdamW) is one CUDA graph; on a CPU it is the same function.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

from recombine.errors import InvalidValue
from recombine.specs import RunSpec
from recombine.training.adamw import adamw_update
from recombine.training.devices import arithmetic
from recombine.training.ensemble import STACKED, Ensemble, State
from recombine.training.tables import Batches, Window, batches_of

LONGEST_SPAN = 256
"""Maximum number of steps between two yields."""
SPAN_SECONDS = (0.25, 1.0)
"""Spans are lengthened if they take less than the first time, and shortened if they take more than the second."""
GIB = 2**30
PROBED = (1, 3)
"""Sizes of the ensembles whose memory is measured; the difference gives the memory per member. The first is enough if
as many times its memory as there are members fit."""
SHARE = 0.85
"""Fraction of the memory to use; the rest is for library workspaces and fragmentation."""


def fit(ensemble: Ensemble, state: State) -> Iterator[None]:
    """Train all members to their last step, yielding periodically so that the caller can show progress, save or stop.

    Parameters
    ----------
    ensemble
        The members.
    state
        Initial state, which is modified in place.

    Examples
    --------
    >>> import recombine as rc
    >>> import torch
    >>> spec = rc.RunSpec(task=rc.BumpTask(size=8), decoder="mlp:width=8:depth=1", recipe=rc.Recipe(steps=3))
    >>> ensemble = rc.Ensemble(spec, torch.device("cpu"))
    >>> state = rc.State.stack([ensemble.fresh(0)], ensemble.device)
    >>> for _ in rc.fit(ensemble, state):
    ...     pass  # save a checkpoint, look at state.errors, stop
    >>> state.step.tolist(), len(state.errors[0])
    ([3], 3)
    """
    if state.weights.shape != (len(ensemble), ensemble.layout.size):
        raise InvalidValue("state", state.weights, f"the state of this ensemble's {len(ensemble)} members")
    stepper = Stepper(ensemble, state)
    span = 1
    while left := stepper.left():
        began = time.perf_counter()
        stepper.advance(min(span, left))
        took = time.perf_counter() - began
        span = min(2 * span, stepper.longest_span) if took < SPAN_SECONDS[0] else span
        span = max(span // 2, 1) if took > SPAN_SECONDS[1] else span
        yield
    state.alive &= torch.isfinite(state.weights).all(dim=1)


class Stepper:
    """Takes training steps with batches on the device."""

    def __init__(self, ensemble: Ensemble, state: State) -> None:
        self.ensemble, self.state, self.table = ensemble, state, ensemble.table
        self.longest_span = min(LONGEST_SPAN, self.table.longest_span)
        members, batch, device = len(ensemble), ensemble.recipe.batch, ensemble.device
        self.batches = Batches(
            torch.zeros(LONGEST_SPAN, members, batch, dtype=torch.int64, device=device),
            torch.zeros(LONGEST_SPAN, members, batch, device=device),
            torch.zeros(LONGEST_SPAN, members, dtype=torch.bool, device=device),
        )
        self.cursor = torch.zeros(1, dtype=torch.int64, device=device)
        self.errors = torch.zeros(LONGEST_SPAN, members, device=device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self._ahead: tuple[list[int], Batches] | None = None

    def left(self) -> int:
        """Return the number of steps until all members that have not diverged are finished."""
        left = torch.tensor(self.ensemble.totals) - self.state.step.cpu()
        return int((left * self.state.alive.cpu()).max())

    def advance(self, span: int) -> None:
        """Take `span` steps and record each member's errors."""
        first, alive = self.state.step.tolist(), self.state.alive.tolist()
        for buffer, part in zip(self.batches, self._batches(first, alive, span), strict=True):
            buffer[:span].copy_(part[:span])
        self.cursor.zero_()
        with arithmetic(self.ensemble.recipe.precision, benchmark=True):
            if self.ensemble.device.type == "cuda":
                self.graph = self.graph or self._captured()
                for _ in range(span):
                    self.graph.replay()
                if not isinstance(self.table, Window):  # prepare the likely next batches while the device is busy
                    after = self._after(first, alive, span)
                    self._ahead = after, batches_of(self.ensemble.schedules, after, min(2 * span, LONGEST_SPAN))
                torch.cuda.synchronize(self.ensemble.device)
            else:
                for _ in range(span):
                    self.step()
        errors, last = self.errors[:span].cpu(), self.state.step.tolist()
        for k, (before, after) in enumerate(zip(first, last, strict=True)):
            self.state.errors[k] = torch.cat([self.state.errors[k], errors[: after - before, k]])

    def step(self) -> None:
        """Take one step for all members, using only buffers at fixed addresses, as CUDA graphs require."""
        state, recipe = self.state, self.ensemble.recipe
        rows, shares, active = (part.index_select(0, self.cursor).squeeze(0) for part in self.batches)
        active = active & state.alive
        loss, gradient = self.ensemble.gradients(state, rows, shares, active)
        state.alive &= torch.isfinite(loss.total) | ~active
        state.buffers.copy_(torch.where((active & state.alive)[:, None], loss.buffers, state.buffers))
        adamw_update(
            state.weights, state.mean, state.square, state.step, gradient, active & state.alive,
            lr=self.ensemble.rates(state.step), weight_decay=self.ensemble.weight_decay,
            beta1=recipe.beta1, beta2=recipe.beta2, epsilon=recipe.epsilon,
        )  # fmt: skip
        self.errors.index_copy_(0, self.cursor, loss.error[None].to(self.errors.dtype))
        self.cursor += 1

    def _batches(self, first: list[int], alive: list[bool], span: int) -> Batches:
        """Return the next batches, reusing those prepared ahead if possible; move streamed examples to the device."""
        if isinstance(self.table, Window):
            batches = self.table.move(batches_of(self.ensemble.schedules, first, span))
            self.table.read_ahead(batches_of(self.ensemble.schedules, self._after(first, alive, span), span))
            return batches
        if self._ahead is not None and self._ahead[0] == first and len(self._ahead[1].rows) >= span:
            return self._ahead[1]
        return batches_of(self.ensemble.schedules, first, span)

    def _after(self, first: list[int], alive: list[bool], span: int) -> list[int]:
        """Return the likely step of each member after `span` more steps."""
        members = zip(first, self.ensemble.totals, alive, strict=True)
        return [min(step + span, total) if on else step for step, total, on in members]

    def _captured(self) -> torch.cuda.CUDAGraph:
        """Capture a step as a CUDA graph; warm-up steps are undone."""
        changing: list[Tensor] = [*(getattr(self.state, name) for name in STACKED), self.cursor]
        copies = [tensor.clone() for tensor in changing]
        side = _side(self.ensemble.device)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.empty_cache()  # a graph has its own memory pool
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            self.step()
        for tensor, before in zip(changing, copies, strict=True):
            tensor.copy_(before)
        return graph


@cache
def _side(device: torch.device) -> torch.cuda.Stream:
    """Return the stream for capturing graphs (a single one, since libraries keep a workspace per stream)."""
    return torch.cuda.Stream(device)


@contextmanager
def within(budget: float | None, device: torch.device) -> Iterator[None]:
    """Limit device memory in this context to a budget in GiB; this has no effect on a CPU."""
    if budget is None or device.type != "cuda":
        yield
        return
    total = torch.cuda.get_device_properties(device).total_memory
    number = torch.cuda.current_device() if device.index is None else device.index
    before = torch.cuda.get_per_process_memory_fraction(number)
    torch.cuda.set_per_process_memory_fraction(min(before, budget * GIB / total), number)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(before, number)


def fitting_members(specs: Sequence[RunSpec], device: torch.device, budget: float | None) -> int:
    """Return how many of the specs, which can all be trained together, fit the memory budget (at least one)."""
    if device.type != "cuda" or len(specs) <= PROBED[-1]:
        return len(specs)
    free: float = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
    free = free if budget is None else min(free, budget * GIB)
    try:
        first = _peak(specs[: PROBED[0]], device)
        if first * len(specs) < SHARE * free - torch.cuda.memory_allocated(device):
            return len(specs)
        second = _peak(specs[: PROBED[1]], device)
    except torch.cuda.OutOfMemoryError:
        return 1
    kept = torch.cuda.memory_allocated(device)  # includes library workspaces
    planned = SHARE * free - kept
    each = max(1.0, (second - first) / (PROBED[1] - PROBED[0]))
    return max(1, min(len(specs), int((planned - first) / each) + 1))


def _peak(specs: Sequence[RunSpec], device: torch.device) -> int:
    """Return the peak memory of an ensemble's training step, in bytes."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    ensemble, side = Ensemble(specs, device), _side(device)
    stepper = Stepper(ensemble, ensemble.initial())
    side.wait_stream(torch.cuda.current_stream())
    with arithmetic(ensemble.recipe.precision, benchmark=True), torch.cuda.stream(side):
        stepper.step()  # with empty batches, which take as much memory
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before
