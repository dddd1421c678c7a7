"""Watching a module that we did not write: which tensors its parts return, and where their rows are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.autocast_mode import is_autocast_available

from recombine.errors import InvalidValue
from recombine.metrics import Reader, Tap
from recombine.metrics.stages import INPUT, Encode, flat, sampled

OUTPUT = "output"
"""Name of the stage that is the module's output."""
MODULE_INPUT, MODULE_OUTPUT = ".input", ".output"
"""Keys of the module's own input and output among the layouts; no part can have them."""
NESTING = 6
"""How deep a tensor may lie in what a module returns."""

Forward = Callable[[Tensor], object]


@dataclass(frozen=True)
class Layout:
    """Where the rows of a stage are: which floating tensor of what is returned, which dimension of it, and how many
    entries of that dimension belong to one row (windows or tokens that are folded into the batch)."""

    tensor: int = 0
    axis: int = 0
    fold: int = 1

    def rows(self, returned: object, count: int) -> Tensor | None:
        """The stage as `(row, …)`; none where it does not have that many rows."""
        tensors = tensors_in(returned)
        tensor = tensors[self.tensor] if self.tensor < len(tensors) else None
        if tensor is None or tensor.ndim <= self.axis or tensor.shape[self.axis] != count * self.fold:
            return None
        first = tensor.movedim(self.axis, 0)
        return first.unflatten(0, (count, self.fold)) if self.fold > 1 else first


def module_reader(
    module: nn.Module,
    encode: Encode,
    names: Sequence[str],
    layouts: Mapping[str, Layout] | None = None,
    forward: Forward | None = None,
) -> Reader:
    """Reads the input, the named submodules as they are run, and the output.

    Rows come first in every stage unless `layouts` says where they are; `forward` runs the module, by default plainly.
    """
    known = dict(layouts or {})

    def read(values: Tensor, tap: Tap) -> None:
        inputs = encode(values)
        count = len(values)
        tap(INPUT, inputs.movedim(known.get(MODULE_INPUT, Layout()).axis, 0))
        seen: set[str] = set()

        def hook(name: str, part: nn.Module, inputs: object, returned: object) -> None:
            rows = None if name in seen else known.get(name, Layout()).rows(returned, count)
            if rows is not None:
                seen.add(name)
                with without_autocast(rows.device.type):  # the module's own, which is not for metrics
                    tap(stage_name(name), rows)

        def laid_out(part: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            # torch's derivative of group norm cannot read tangents with other strides
            return (inputs[0].clone(memory_format=torch.contiguous_format), *inputs[1:])

        parts = dict(module.named_modules(remove_duplicate=False))
        hooks = [parts[name].register_forward_hook(partial(hook, name)) for name in names]
        hooks += [p.register_forward_pre_hook(laid_out) for p in parts.values() if isinstance(p, nn.GroupNorm)]
        try:
            returned = (forward or module)(inputs)
        finally:
            for handle in hooks:
                handle.remove()
        if missing := [name for name in names if name not in seen]:
            raise InvalidValue("stages", missing[0], "submodules that run, and give a floating row per input row")
        tap(OUTPUT, output_rows(module, returned, known.get(MODULE_OUTPUT, Layout()), count))

    return read


def activations(reader: Reader, values: Tensor) -> dict[str, Tensor]:
    """Each stage's `(row, feature)` for a few rows, in double precision; of many features some, evenly spread."""
    stages: dict[str, Tensor] = {}

    def tap(name: str, activation: Tensor) -> None:
        stages[name] = sampled(flat(activation)).double().clone()  # a later layer may work in place

    with torch.no_grad():
        reader(values, tap)
    return stages


def without_autocast(device: str) -> AbstractContextManager[object]:
    """A context of full precision on a kind of device."""
    return torch.autocast(device, enabled=False) if is_autocast_available(device) else nullcontext()


def output_rows(module: nn.Module, returned: object, layout: Layout, count: int) -> Tensor:
    """The module's output as `(row, …)`."""
    rows = layout.rows(returned, count)
    if rows is None:
        raise InvalidValue("module", type(module).__name__, "a module whose output has a floating row per input row")
    return rows


def stage_name(path: str) -> str:
    """What the stage of a submodule is called: its path, unless that is the name of a stage of ours."""
    return f"module.{path}" if path in (INPUT, OUTPUT) else path


def tensors_in(returned: object) -> list[Tensor]:
    """All dense floating tensors of what a module returns: a tensor, or any nesting of tuples, mappings and objects."""
    return list(_tensors(returned, NESTING, set()))


def _tensors(returned: object, depth: int, seen: set[int]) -> Iterator[Tensor]:
    if isinstance(returned, Tensor):
        if returned.is_floating_point() and not returned.is_nested and returned.layout == torch.strided:
            yield returned
        return
    if not depth or id(returned) in seen or isinstance(returned, (nn.Module, type)):
        return
    seen.add(id(returned))
    if isinstance(returned, Mapping):
        fields = list(returned.values())
    elif isinstance(returned, (tuple, list)):
        fields = list(returned)
    else:  # dataclasses, distributions, namespaces
        fields = list(getattr(returned, "__dict__", {}).values())
    for field in fields:
        yield from _tensors(field, depth - 1, seen)
