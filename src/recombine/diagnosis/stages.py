"""Select the submodules that are the stages of a user's module, find their batch dimensions, and read their outputs.

By default, the stages are the submodules that run, in the order in which they finish. A container that is never called
is replaced by its children. So is a submodule that contains at least half of all layers (at least a quarter while there
are fewer than `FEW` stages), unless it has fewer than `SMALL` layers. A single stage is always replaced by its
children. If there would be more than `MANY` stages, some are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.autocast_mode import is_autocast_available

from recombine.diagnosis.calling import NAMED, SHOWN, named_tensors, output_notes
from recombine.errors import InvalidValue, listed, reason_of
from recombine.metrics.stages import INPUT, Encode, Reader, Tap, flat, sampled, tapped

OUTPUT = "output"
MODULE_OUTPUT = ".output"
"""Key of the module's output in the layouts, chosen so that no submodule can have this path."""
FEW, SMALL, MANY = 4, 3, 24
WILDCARDS = {"**": ".*", "*": "[^.]*", "?": "[^.]"}
ROWS = (2, 3, 5)
"""Batch sizes for which output shapes are compared to find a stage's batch dimension."""
MEASURABLE = "submodules that run and return floating-point values with one row per input row"

Forward = Callable[[Tensor], object]


@dataclass(frozen=True)
class Layout:
    """Position of a stage's rows in the returned object: the index of the floating-point tensor, the batch dimension,
    and the number of entries per row along it (more than 1 if windows or tokens are folded into the batch)."""

    tensor: int = 0
    axis: int = 0
    fold: int = 1

    def rows(self, returned: object, count: int) -> Tensor | None:
        """Return the stage's activations as `(row, …)`, or None if there are not `count` rows."""
        tensors = named_tensors(returned)
        tensor = tensors[self.tensor][1] if self.tensor < len(tensors) else None
        if tensor is None or tensor.ndim <= self.axis or tensor.shape[self.axis] != count * self.fold:
            return None
        first = tensor.movedim(self.axis, 0)
        return first.unflatten(0, (count, self.fold)) if self.fold > 1 else first


@dataclass
class ModuleStages:
    """A module and the submodules that serve as its stages."""

    module: nn.Module
    forward: Forward
    """Runs the module, under the caller's autocast context if there is one."""
    encode: Encode
    names: list[str]
    """Paths of the submodules, in the order in which they finish."""
    layouts: Mapping[str, Layout]
    notes: list[str]
    epsilon: float
    """Machine epsilon of the least precise type returned by any submodule."""

    def read(self, values: Tensor, tap: Tap) -> None:
        """Pass the input, each stage as it runs, and the output to the tap (implements `Reader`)."""
        count, seen = len(values), set[str]()

        def hook(name: str, part: nn.Module, inputs: object, returned: object) -> None:
            rows = None if name in seen else self.layouts[name].rows(returned, count)
            if rows is not None:
                seen.add(name)
                with without_autocast(rows.device.type):  # autocast applies to the module but not to metrics
                    tap(stage_name(name), rows)

        def contiguous(part: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            # torch's forward-mode derivative of group norm fails if tangents and primals have different strides
            return (inputs[0].clone(memory_format=torch.contiguous_format), *inputs[1:])

        parts = dict(self.module.named_modules(remove_duplicate=False))
        hooks = [p.register_forward_pre_hook(contiguous) for p in parts.values() if isinstance(p, nn.GroupNorm)]
        try:
            inputs = self.encode(values)  # may run the encoder of the same module, which is not a stage
            tap(INPUT, inputs)
            hooks += [parts[name].register_forward_hook(partial(hook, name)) for name in self.names]
            returned = self.forward(inputs)
        finally:
            for handle in hooks:
                handle.remove()
        if missing := [name for name in self.names if name not in seen]:
            raise InvalidValue("stages", missing[0], MEASURABLE)
        tap(OUTPUT, self.output_rows(returned, count))

    def output_rows(self, returned: object, count: int) -> Tensor:
        """Return the module's output as `(row, …)`."""
        rows = self.layouts.get(MODULE_OUTPUT, Layout()).rows(returned, count)
        if rows is None:
            required = "a module whose output has one floating-point row per input row (output= chooses another)"
            raise InvalidValue("module", type(self.module).__name__, required)
        return rows


@torch.no_grad()
def activations(reader: Reader, values: Tensor) -> dict[str, Tensor]:
    """Return the `(row, feature)` activations of every stage in double precision, restricted to `sampled` features."""
    # copied, since a later layer may modify them in place
    return tapped(reader, values, lambda activation: sampled(flat(activation)).double().clone())


def without_autocast(device: str) -> AbstractContextManager[object]:
    """Return a context that disables autocast on the given device type."""
    return torch.autocast(device, enabled=False) if is_autocast_available(device) else nullcontext()


def stage_name(path: str) -> str:
    """Return a submodule's stage name: its path, with a prefix if the path is `input` or `output`."""
    return f"module.{path}" if path in (INPUT, OUTPUT) else path


def module_stages(
    module: nn.Module, forward: Forward, encode: Encode, points: Tensor, stages: Sequence[str] | None = None
) -> ModuleStages:
    """Return the stages of a module: the named submodules or the default stages."""
    traces = [_traced(module, forward, encode, spread(points, rows)) for rows in ROWS]
    by_name = {name: _row_layout([trace.shapes.get(name, []) for trace in traces]) for name in traces[0].shapes}
    layouts = {name: layout for name, layout in by_name.items() if layout is not None}
    ran = [name for name in traces[0].shapes if name != MODULE_OUTPUT]
    tree = _Tree(module, ran)
    selected, notes = _default_stages(tree) if stages is None else (_named_stages(tree, stages, ran, layouts), [])
    names = [name for name in ran if name in selected and name in layouts]
    repeated = {name for name in names if traces[0].calls[name] > 1}
    notes += _note_about("left out, since they do not return one floating-point row per input row", selected - {*names})
    notes += _note_about("called more than once, measured at the first call", repeated)
    notes += output_notes(*traces[0].returned, layouts.get(MODULE_OUTPUT, Layout()).tensor)
    return ModuleStages(module, forward, encode, names, layouts, notes, max(trace.epsilon for trace in traces))


class _Tree:
    """The submodules that ran, by path; a submodule with several paths is listed under the first."""

    def __init__(self, module: nn.Module, ran: Sequence[str]) -> None:
        self.module = module
        self.parts = _submodules(module)
        first: dict[int, str] = {}
        for name, part in self.parts.items():
            first.setdefault(id(part), name)
        self.ran = {name for name in ran if first[id(self.parts[name])] == name}
        self.again = {name for name in self.parts if first[id(self.parts[name])] != name}
        above = {name.rsplit(".", depth)[0] for name in self.ran for depth in range(1, name.count(".") + 1)}
        self.above = above - {""}
        self.layers = {name for name in self.ran if name not in self.above}

    def children(self, name: str) -> list[str]:
        return [path for path in self.parts if path.rpartition(".")[0] == name]

    def running(self, names: Sequence[str]) -> tuple[list[str], set[str]]:
        """Return the submodules that ran, replacing uncalled containers by their children, and those that did not."""
        running: list[str] = []
        idle: set[str] = set()
        for name in names:
            if name in self.ran:
                running.append(name)
            elif name in self.above:
                inner, unused = self.running(self.children(name))
                running += inner
                idle |= unused
            elif name not in self.again and any(True for _ in self.parts[name].parameters()):
                idle.add(name)
        return running, idle

    def size(self, name: str) -> int:
        """Return the number of layers in a submodule."""
        return sum(layer == name or layer.startswith(f"{name}.") for layer in self.layers)

    def large(self, level: list[str]) -> list[str]:
        """Return which of these submodules should be replaced by their children."""
        if len(level) >= MANY:
            return []
        least = max(SMALL, len(self.layers) / (4 if len(level) < FEW else 2)) if len(level) > 1 else 0
        return [name for name in level if self.size(name) >= least and name in self.above]


def _default_stages(tree: _Tree) -> tuple[set[str], list[str]]:
    """Return the default stages, with notes on submodules that did not run or were left out."""
    level, idle = tree.running(tree.children(""))
    skipped: set[str] = set()
    while large := tree.large(level):
        for name in large:
            inner, unused = tree.running(tree.children(name))
            count = min(len(inner), max(2, MANY - len(level) + 1))
            # evenly spaced, including the first and last submodule
            kept = [inner[round(k * (len(inner) - 1) / max(1, count - 1))] for k in range(count)]
            level = [new for old in level for new in (kept if old == name else [old])]
            skipped |= {*inner} - {*kept}
            idle |= unused
    scripted = {name for name, part in tree.module.named_modules() if isinstance(part, torch.jit.ScriptModule)}
    outer = {name or "the module" for name in scripted if not name or name.rpartition(".")[0] not in scripted}
    notes = _note_about("not run", idle)
    notes += _note_about("scripted or traced, so that its submodules cannot be read", outer)
    return {*level}, notes + _note_about(f"left out to have at most {MANY} stages, unless stages are named", skipped)


def _named_stages(tree: _Tree, stages: Sequence[str], ran: list[str], layouts: Mapping[str, Layout]) -> set[str]:
    """Return the submodules that are named or match a pattern; named submodules must be measurable."""
    selected: set[str] = set()
    for pattern in stages:
        if set(pattern) & set("*?"):
            pieces = re.split(r"(\*\*|\*|\?)", pattern)
            expression = "".join(WILDCARDS.get(piece) or re.escape(piece) for piece in pieces)
            matching = [name for name in tree.parts if re.fullmatch(expression, name)]
            running = {*tree.running(matching)[0], *matching} & {*ran}
            if not running:
                raise InvalidValue("stages", pattern, f"patterns of submodules that run ({listed(ran[:SHOWN])})")
            selected |= running
        elif pattern not in tree.parts:
            raise InvalidValue("stages", pattern, f"paths of submodules ({listed([*tree.parts][:SHOWN])})")
        elif pattern not in layouts:
            raise InvalidValue("stages", pattern, MEASURABLE)
        else:
            selected.add(pattern)
    return selected


def _note_about(what: str, names: set[str]) -> list[str]:
    """Return a list with a one-line note about these submodules, or an empty list if there are none."""
    if not names:
        return []
    ordered = sorted(names, key=lambda name: [(not level.isdigit(), level.zfill(9)) for level in name.split(".")])
    more = f" and {len(ordered) - NAMED} more" if len(ordered) > NAMED else ""
    return [f"{what}: {listed(ordered[:NAMED])}{more}"]


@dataclass
class _Trace:
    """The submodules that ran on one batch and the shapes of what they returned."""

    calls: Counter[str] = field(default_factory=Counter)
    shapes: dict[str, list[torch.Size]] = field(default_factory=dict)
    """Shapes of the tensors returned by each submodule's first call, in the order in which submodules finished."""
    epsilon: float = torch.finfo(torch.float64).eps
    returned: tuple[str, list[str]] = ("", [])
    """The type of the module's output, and the names of the tensors in it."""

    def record(self, name: str, returned: object) -> None:
        named = named_tensors(returned)
        tensors = [tensor for _, tensor in named]
        if name == MODULE_OUTPUT:
            self.returned = type(returned).__name__, [own for own, _ in named]
        self.calls[name] += 1
        self.shapes.setdefault(name, [tensor.shape for tensor in tensors])
        self.epsilon = max([self.epsilon, *(torch.finfo(tensor.dtype).eps for tensor in tensors)])


def spread(points: Tensor, count: int) -> Tensor:
    """Return `count` evenly spaced grid points, with repetitions if the grid has fewer points."""
    return points[torch.linspace(0, len(points) - 1, count, device=points.device).round().long()]


def _traced(module: nn.Module, forward: Forward, encode: Encode, points: Tensor) -> _Trace:
    inputs, trace = encode(points), _Trace()
    hooks = [
        part.register_forward_hook(lambda part, inputs, returned, name=name: trace.record(name, returned))
        for name, part in _submodules(module).items()
    ]
    try:
        with torch.no_grad():
            trace.record(MODULE_OUTPUT, forward(inputs))
    except InvalidValue:
        raise
    except Exception as error:
        shape, reason = tuple(inputs.shape[1:]), reason_of(error)
        required = f"a module that accepts encoded rows of shape {shape}, which encode= (--encoding) sets ({reason})"
        raise InvalidValue("module", type(module).__name__, required) from error
    finally:
        for handle in hooks:
            handle.remove()
    return trace


def _submodules(module: nn.Module) -> dict[str, nn.Module]:
    """Return the submodules that support hooks, by path; scripted modules run their children without hooks."""
    if isinstance(module, torch.jit.ScriptModule):
        return {}
    parts: dict[str, nn.Module] = {}
    for name, child in module._modules.items():  # unlike `named_children`, lists a child under all its names
        if child is not None and not isinstance(child, torch.jit.ScriptModule):
            parts[name] = child
            parts |= {f"{name}.{path}": part for path, part in _submodules(child).items()}
    return parts


def _row_layout(shapes: Sequence[list[torch.Size]]) -> Layout | None:
    """Infer the layout of a stage's rows from the shapes it returns for batches of `ROWS` examples."""
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
