"""What runs in a module, and where what it returns has its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from recombine.diagnosis.hooks import MODULE_INPUT, MODULE_OUTPUT, Forward, Layout, tensors_in
from recombine.errors import InvalidValue, reason_of
from recombine.metrics.stages import Encode

ROWS = (2, 3, 5)
"""Batch sizes that are compared to find out where a stage has its rows."""


@dataclass
class Trace:
    """What ran, and what it returned, for one batch."""

    calls: Counter[str] = field(default_factory=Counter)
    shapes: dict[str, list[torch.Size]] = field(default_factory=dict)
    """Of each part's first run, in the order in which parts finished."""
    epsilon: float = torch.finfo(torch.float64).eps
    """Of the coarsest number that any part returned."""

    def note(self, name: str, returned: object) -> None:
        tensors = tensors_in(returned)
        self.calls[name] += 1
        self.shapes.setdefault(name, [tensor.shape for tensor in tensors])
        self.epsilon = max([self.epsilon, *(torch.finfo(tensor.dtype).eps for tensor in tensors)])


def spread(points: Tensor, count: int) -> Tensor:
    """Points from all over the grid; the same ones again where it has fewer."""
    return points[torch.linspace(0, len(points) - 1, count, device=points.device).round().long()]


def traced(module: nn.Module, forward: Forward, encode: Encode, points: Tensor) -> Trace:
    """What runs, and what it returns, for some points."""
    inputs, trace = encode(points), Trace()
    trace.shapes[MODULE_INPUT] = [inputs.shape]
    hooks = [
        part.register_forward_hook(lambda part, inputs, returned, name=name: trace.note(name, returned))
        for name, part in watchable(module).items()
    ]
    try:
        with torch.no_grad():
            trace.note(MODULE_OUTPUT, forward(inputs))
    except InvalidValue:
        raise
    except (Exception, SystemExit) as error:
        allowed = (
            f"a module that takes the encoded grid, {tuple(inputs.shape[1:])} numbers per row ({reason_of(error)})"
        )
        raise InvalidValue("module", type(module).__name__, allowed) from error
    finally:
        for handle in hooks:
            handle.remove()
    return trace


def watchable(module: nn.Module) -> dict[str, nn.Module]:
    """The parts that can be watched, by path; scripted code runs its parts out of sight."""
    if isinstance(module, torch.jit.ScriptModule):
        return {}
    parts: dict[str, nn.Module] = {}
    for name, child in module._modules.items():  # a part that has two names is here under both
        if child is not None and not isinstance(child, torch.jit.ScriptModule):
            parts[name] = child
            parts |= {f"{name}.{path}": part for path, part in watchable(child).items()}
    return parts


def row_layout(shapes: Sequence[list[torch.Size]]) -> Layout | None:
    """Where rows are, from the shapes of the same stage for batches of `ROWS`."""
    if len({len(tensors) for tensors in shapes}) > 1:
        return None
    for index, sizes in enumerate(zip(*shapes, strict=True)):
        if len({len(size) for size in sizes}) > 1:
            continue
        for axis in range(len(sizes[0])):
            if all(size[axis] == rows for size, rows in zip(sizes, ROWS, strict=True)):
                return Layout(index, axis)
        fold = sizes[0][0] // ROWS[0] if len(sizes[0]) else 0
        if fold and all(size[0] == rows * fold for size, rows in zip(sizes, ROWS, strict=True)):
            return Layout(index, 0, fold)
    return None
