"""Which parts of a module are its stages.

By default these are the parts that the module runs, in the order in which they finish. A container that never runs
itself is replaced by its parts, and a part is opened that holds more than half of all layers, or at least a quarter
where fewer than `FEW` parts run. A part of fewer than `SMALL` layers stays closed, unless it is the only one. Of parts
that would make more than `MANY` stages some are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from recombine.diagnosis.hooks import MODULE_INPUT, MODULE_OUTPUT, Forward, Layout, tensors_in
from recombine.errors import InvalidValue, listed, reason_of
from recombine.metrics.stages import Encode

FEW, SMALL, MANY = 4, 3, 24
NAMED, SHOWN = 6, 12
"""Parts that a note names before it counts the rest, and that a message lists."""
WILDCARDS = {"**": ".*", "*": "[^.]*", "?": "[^.]"}
ROWS = (2, 3, 5)
"""Batch sizes that are compared to find out where a stage has its rows."""


def module_parts(
    module: nn.Module, forward: Forward, encode: Encode, points: Tensor, stages: Sequence[str] | None
) -> tuple[list[str], dict[str, Layout], list[str], float]:
    """The stages of a module, those that are named, else its own parts; where rows are, notes and rounding."""
    traces = [traced(module, forward, encode, spread(points, rows)) for rows in ROWS]
    found = {name: row_layout([trace.shapes.get(name, []) for trace in traces]) for name in traces[0].shapes}
    layouts = {name: layout for name, layout in found.items() if layout is not None}
    ran = [name for name in traces[0].shapes if name not in (MODULE_INPUT, MODULE_OUTPUT)]
    selected, notes = (
        _default_stages(module, ran) if stages is None else (_named_stages(module, stages, ran, layouts), [])
    )
    calls = traces[0].calls
    names = [name for name in ran if name in selected and name in layouts]
    notes += _note_about("left out, since they do not give a floating row per input row", selected - {*names})
    notes += _note_about("run more than once, and measured the first time", {n for n in names if calls[n] > 1})
    return names, layouts, notes, max(trace.epsilon for trace in traces)


class _Tree:
    """The parts that ran, by path; a part with several names counts under its first."""

    def __init__(self, module: nn.Module, ran: Sequence[str]) -> None:
        self.parts = watchable(module)
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
        """Names whose parts ran, containers that never did replaced by what they hold; and what did not run."""
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

    def share(self, name: str) -> int:
        """How many layers a part holds."""
        return sum(layer == name or layer.startswith(f"{name}.") for layer in self.layers)


def _default_stages(module: nn.Module, ran: list[str]) -> tuple[set[str], list[str]]:
    """The parts that are stages by themselves; notes about those that did not run, or were too many."""
    tree = _Tree(module, ran)
    level, idle = tree.running([name for name in tree.parts if "." not in name])
    skipped: set[str] = set()
    while large := _large(tree, level):
        for name in large:
            inner, unused = tree.running(tree.children(name))
            count = min(len(inner), max(2, MANY - len(level) + 1))  # evenly spread, first and last among them
            kept = [inner[round(k * (len(inner) - 1) / max(1, count - 1))] for k in range(count)]
            level = [new for old in level for new in (kept if old == name else [old])]
            skipped |= {*inner} - {*kept}
            idle |= unused
    scripted = {name for name, part in module.named_modules() if isinstance(part, torch.jit.ScriptModule)}
    outer = {name or "the module" for name in scripted if not name or name.rpartition(".")[0] not in scripted}
    notes = _note_about("not run", idle)
    notes += _note_about("scripted or traced, so that its parts cannot be watched", outer)
    return {*level}, notes + _note_about(f"left out to have {MANY} stages at most, unless stages are named", skipped)


def _large(tree: _Tree, level: list[str]) -> list[str]:
    """Parts of a level that are to be opened."""
    least = max(SMALL, len(tree.layers) / (4 if len(level) < FEW else 2)) if len(level) > 1 else 0
    return [name for name in level if tree.share(name) >= least and name in tree.above] if len(level) < MANY else []


def _named_stages(module: nn.Module, stages: Sequence[str], ran: list[str], layouts: dict[str, Layout]) -> set[str]:
    """The parts that are named or match a pattern; a name must be one that can be measured."""
    tree = _Tree(module, ran)
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
            raise InvalidValue("stages", pattern, "submodules that run, and give a floating row per input row")
        else:
            selected.add(pattern)
    return selected


def _note_about(what: str, names: set[str]) -> list[str]:
    """A note about some parts, in one line."""
    if not names:
        return []
    ordered = sorted(names, key=lambda name: [(not level.isdigit(), level.zfill(9)) for level in name.split(".")])
    more = f" and {len(ordered) - NAMED} more" if len(ordered) > NAMED else ""
    return [f"{what}: {listed(ordered[:NAMED])}{more}"]


# -- what runs in a module, and where what it returns has its rows -----------------------------------------------------


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
