"""How many members fit a GPU: measured on a few, kept under a budget.

The budget is a hard one: the allocator refuses to go beyond it. The measurement only saves refusals.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch

from recombine.specs import RunSpec
from recombine.training.ensemble import Ensemble
from recombine.training.fit import Stepper

GIB = 2**30
PROBED = (1, 3)
"""Members of the two ensembles that are measured: the second costs two members more."""
SHARE = 0.85
"""Of the budget that is planned with; libraries keep work spaces, and blocks of memory do not fit without gaps."""


@contextlib.contextmanager
def within(budget: float | None, device: torch.device) -> Iterator[None]:
    """No more than so many GiB of device memory in the block; without a budget, and on a CPU, as much as there is."""
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
    """How many of the specs, which share a program, train together within the budget; at least one."""
    if device.type != "cuda":
        return len(specs)
    if len(specs) <= PROBED[-1]:
        return len(specs)
    free = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
    try:
        first, second = (_peak(specs[:count], device) for count in PROBED)
    except torch.cuda.OutOfMemoryError:
        return 1
    kept = torch.cuda.memory_allocated(device)  # libraries' work spaces among it
    planned = SHARE * (free if budget is None else min(free, budget * GIB)) - kept
    each = max(1.0, (second - first) / (PROBED[1] - PROBED[0]))
    return max(1, min(len(specs), int((planned - first) / each) + 1))


def _peak(specs: Sequence[RunSpec], device: torch.device) -> int:
    """Peak bytes of a step of an ensemble."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    ensemble = Ensemble(list(specs), device)
    Stepper(ensemble, ensemble.initial()).probe()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before
