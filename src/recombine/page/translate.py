"""Translate a torch module to a program for the page by exporting it for one row and traversing the graph.

Anything that does not depend on the input (transposed weights, products of low-rank factors, positions) is computed
here and becomes a constant. Unsupported calls raise `Untranslatable`, whose message names the call and its module.
"""

from __future__ import annotations

import logging
import operator
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.nn.attention import SDPBackend, sdpa_kernel

from recombine.errors import reason_of
from recombine.page import layers  # noqa: F401  registers its translators
from recombine.page.calls import TRANSLATORS, Call, Live, Untranslatable, code_line, is_live
from recombine.page.moving import moved
from recombine.page.program import Program

KEPT = (torch.ops.aten.prelu.default, torch.ops.aten._prelu_kernel.default)
"""Calls that are not decomposed, since the page runs them faster as single operations."""
IGNORED = {"_assert_tensor_metadata", "_assert_async", "_assert_scalar"}


class Exported(NamedTuple):
    """A module's graph in core ATen operations, for itself and others that differ in their weights alone."""

    graph: fx.Graph
    paths: Mapping[str, str]
    """Paths of the tensors for the graph's placeholders."""
    constants: Mapping[str, Tensor]
    """Tensors that are neither parameters nor buffers."""

    def held(self, module: nn.Module) -> dict[str, Tensor]:
        """Return the tensors for the placeholders of a module's graph."""
        own = [module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)]
        tensors = {**self.constants, **dict(own[0]), **dict(own[1])}
        return {name: tensors[path].detach().cpu() for name, path in self.paths.items()}


@torch.no_grad()
def translate(module: nn.Module, row: Tensor, stages: Sequence[str] = (), exported: Exported | None = None) -> Program:
    """Translate a module that maps each row independently; `stages` are the paths of submodules to show.

    `exported` is that of a module with the same structure.
    """
    exported = exported or export(module, row)
    graph, held = exported.graph, exported.held(module)
    program = Program([tuple(row[None].shape)])
    known: dict[fx.Node, Any] = {}
    for node in graph.nodes:
        if node.op == "placeholder":
            known[node] = held[node.name] if node.name in held else Live(0)
        elif node.op == "call_function":
            known[node] = _called(program, node, known)
        elif node.op == "output":
            program.output = _output(program, fx.node.map_arg(node.args[0], lambda n: known[n]))
        else:
            raise Untranslatable(f"{node.op} {node.target}")
    program.stages = _stages(graph, known, stages)
    return program.pruned()


@torch.no_grad()
def export(module: nn.Module, row: Tensor) -> Exported:
    """Export a module for one row."""
    with _plainly():
        try:
            table = torch.export.default_decompositions()
            for kept in KEPT:
                table.pop(kept, None)
            exported = torch.export.export(module, (row[None],)).run_decompositions(table)
        except GuardOnDataDependentSymNode as error:
            raise Untranslatable(f"Python code depends on the values of a tensor{code_line(error)}") from error
        except Exception as error:  # tracing a user's module may raise anything
            raise Untranslatable(f"torch.export failed ({reason_of(error)})") from error
    signature = exported.graph_signature
    paths = {
        **signature.inputs_to_parameters, **signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants
    }  # fmt: skip
    return Exported(exported.graph, paths, exported.constants)


@contextmanager
def _plainly() -> Iterator[None]:
    """Disable fused attention, which has no decomposition, and silence the tracer."""
    fast, level = torch.backends.mha.get_fastpath_enabled(), logging.root.manager.disable
    torch.backends.mha.set_fastpath_enabled(False)
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
        torch.backends.mha.set_fastpath_enabled(fast)


def _called(program: Program, node: fx.Node, known: Mapping[fx.Node, Any]) -> Any:
    """Return the result of a call: a live value if any argument depends on the input, else a tensor or number."""
    args: Any = fx.node.map_arg(node.args, lambda n: known[n])
    kwargs: Any = fx.node.map_arg(node.kwargs, lambda n: known[n])
    if node.target is operator.getitem:
        return args[0][args[1]]
    target: Any = node.target
    schema = getattr(target, "_schema", None)
    name = schema.name.removeprefix("aten::") if schema else str(target)
    if name in IGNORED:
        return None
    tags = getattr(target, "tags", ())
    if torch.Tag.nondeterministic_seeded in tags:
        raise Untranslatable(f"random numbers ({_where(node, name)})")
    if schema is None:
        raise Untranslatable(_where(node, name))
    arguments = {a.name: args[k] if k < len(args) else kwargs.get(a.name, a.default_value)
                 for k, a in enumerate(schema.arguments)}  # fmt: skip
    if name == "full_like" and isinstance(arguments["self"], Live):  # only its shape matters
        arguments["self"] = torch.zeros(node.meta["val"].shape)
    if not is_live(list(arguments.values())):
        if arguments.get("device") is not None:
            arguments["device"] = torch.device("cpu")
        return target(**arguments)
    return _translated(program, node, name, arguments)


def _translated(program: Program, node: fx.Node, name: str, arguments: dict[str, Any]) -> Any:
    """Translate a call and return its live value or values."""
    fake = node.meta["val"]
    first = fake[0] if isinstance(fake, (tuple, list)) else fake
    if first.is_complex():
        raise Untranslatable(f"complex numbers ({_where(node, name)})")
    if name == "split_with_sizes":
        target: Any = node.target
        cut = lambda origin, number: target(**{**arguments, "self": origin})[number]  # noqa: E731
        whole = arguments["self"].number
        return tuple(Live(moved(program, whole, partial(cut, number=number))) for number in range(len(fake)))
    translator = TRANSLATORS.get(name)
    if translator is None:
        raise Untranslatable(_where(node, name))
    try:
        value = Live(translator(Call(program, node.target, arguments, tuple(first.shape))))
    except Untranslatable as error:
        raise Untranslatable(f"{_where(node, name)} {error}") from None
    return (value, *[None] * (len(fake) - 1)) if isinstance(fake, (tuple, list)) else value


def _output(program: Program, returned: Any) -> int:
    """Return the value of the first tensor returned by the module."""
    first = next((value for value in returned if isinstance(value, (Live, Tensor))), None)
    if first is None:
        raise Untranslatable("the module returns no tensor")
    return first.number if isinstance(first, Live) else program.constant(first)  # the same for every input


def _stages(graph: fx.Graph, known: Mapping[fx.Node, Any], stages: Sequence[str]) -> dict[str, int]:
    """Return the last value computed by each submodule."""
    last: dict[str, int] = {}
    for node in graph.nodes:
        if isinstance(known.get(node), Live):
            for path, _ in node.meta.get("nn_module_stack", {}).values():
                last[path] = known[node].number
    return {path: last[path] for path in stages if path in last}


def _where(node: fx.Node, name: str) -> str:
    """Return the name of an operation and the submodule that calls it."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    path, kind = stack[-1] if stack else ("", "")
    kind = kind if isinstance(kind, str) else kind.__name__
    return f"{name} in {kind.rpartition('.')[2]} {path}".rstrip() if kind else name
