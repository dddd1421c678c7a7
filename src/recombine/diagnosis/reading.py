"""Watching a module that we did not write, and leaving it exactly as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from recombine.errors import InvalidValue, listed, reason_of
from recombine.metrics import Reader, Tap
from recombine.metrics.stages import INPUT, Encode

OUTPUT = "output"
"""Name of the stage that is the module's answer."""


def module_reader(module: nn.Module, encode: Encode, names: Sequence[str]) -> Reader:
    """Reads the input, the named submodules as they are run, and the answer."""

    def read(values: Tensor, tap: Tap) -> None:
        inputs = encode(values)
        tap(INPUT, inputs)
        seen: set[str] = set()

        def hook_for(name: str) -> Callable[..., None]:
            def hook(part: nn.Module, given: object, output: object) -> None:
                tensor = tensor_in(output)
                if tensor is not None and name not in seen and tensor.shape[:1] == values.shape[:1]:
                    seen.add(name)
                    tap(f"module.{name}" if name in (INPUT, OUTPUT) else name, tensor)

            return hook

        parts = dict(module.named_modules(remove_duplicate=False))
        hooks = [parts[name].register_forward_hook(hook_for(name)) for name in names]
        hooks += [p.register_forward_pre_hook(_laid_out) for p in parts.values() if isinstance(p, nn.GroupNorm)]
        try:
            answer = tensor_in(module(inputs))
        finally:
            for handle in hooks:
                handle.remove()
        if missing := [name for name in names if name not in seen]:
            raise InvalidValue("stages", missing[0], "submodules that run, and give a floating row an input row")
        if answer is None or not answer.is_floating_point() or answer.shape[:1] != values.shape[:1]:
            raise InvalidValue("module", type(module).__name__, "a module whose answer has a floating row an input row")
        tap(OUTPUT, answer)

    return read


def _laid_out(part: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """A norm's input copied in order: torch's derivative of group norm cannot read tangents with other strides."""
    return (given[0].clone(memory_format=torch.contiguous_format), *given[1:])


def try_inputs(module: nn.Module, inputs: Tensor) -> None:
    """Say in one line that a module does not take these inputs."""
    try:
        with torch.no_grad():
            module(inputs)
    except Exception as error:
        allowed = f"a module that takes the encoded grid, {tuple(inputs.shape[1:])} numbers a row ({reason_of(error)})"
        raise InvalidValue("module", type(module).__name__, allowed) from error


def tensor_in(output: object) -> Tensor | None:
    """The first floating tensor of what a module returns: a tensor, a tuple, a dict or an object with fields."""
    if isinstance(output, Tensor):
        return output if output.is_floating_point() else None
    if isinstance(output, dict):
        output = list(output.values())
    if isinstance(output, (tuple, list)):
        return next((found for part in output if (found := tensor_in(part)) is not None), None)
    return None


@contextmanager
def undisturbed(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; everything as it was afterwards."""
    flags = {part: part.training for part in module.modules()}
    buffers = {
        part: {name: (buffer, None if buffer is None else buffer.clone()) for name, buffer in part._buffers.items()}
        for part in module.modules()
    }
    tensors = (*module.parameters(), *module.buffers())
    devices = sorted({tensor.device.index or 0 for tensor in tensors if tensor.device.type == "cuda"})
    with torch.random.fork_rng(devices=devices):
        module.eval()
        try:
            yield
        finally:
            for part, flag in flags.items():
                part.training = flag
            for part, saved in buffers.items():
                part._buffers.clear()
                for name, (buffer, content) in saved.items():
                    if buffer is not None and content is not None and not torch.equal(buffer, content):
                        buffer.data.copy_(content)
                    part._buffers[name] = buffer


@contextmanager
def differentiable(module: nn.Module) -> Iterator[None]:
    """Without the fused kernels that have no forward-mode derivative."""
    recurrent = any(isinstance(part, nn.RNNBase) for part in module.modules())
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with ExitStack() as stack:
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            if recurrent:
                stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
                stack.enter_context(torch.backends.cudnn.flags(enabled=False))
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def check_stages(module: nn.Module, stages: Sequence[str]) -> list[str]:
    known = [name for name, _ in module.named_modules(remove_duplicate=False) if name]
    for name in stages:
        if name not in known:
            raise InvalidValue("stages", name, f"paths of submodules: {listed(known[:12])}")
    return list(stages)


def found_stages(module: nn.Module, inputs: Tensor) -> list[str]:
    """The module's own parts in the order they run; a lone part, or a mere list of parts, is looked into."""
    called: list[str] = []
    shapes: dict[str, int] = {}
    newest: list[Tensor] = []

    def note(name: str, output: object) -> None:
        called.append(name)
        tensor = tensor_in(output)
        if tensor is not None and tensor.ndim > 0:
            shapes.setdefault(name, len(tensor))
            newest[:] = [tensor.clone()]  # what comes after may work in place

    parts = {name: part for name, part in module.named_modules(remove_duplicate=False) if name}
    hooks = [
        part.register_forward_hook(lambda p, given, output, name=name: note(name, output))
        for name, part in parts.items()
    ]
    try:
        with torch.no_grad():
            answer = tensor_in(module(inputs))
    finally:
        for handle in hooks:
            handle.remove()
    level = [name for name in parts if "." not in name]
    while True:
        opened = [
            inner
            for name in level
            for inner in (
                [name] if name in called or not list(parts[name].named_children()) else _children(parts, name)
            )
        ]
        if len(opened) == 1 and list(parts[opened[0]].named_children()):
            opened = _children(parts, opened[0])
        if opened == level:
            break
        level = opened
    run = [name for name in dict.fromkeys(called) if name in level]
    run = [name for name in run if shapes.get(name) == len(inputs)]
    is_answer = (
        bool(run)
        and called.count(run[-1]) == 1
        and called[-1] == run[-1]
        and answer is not None
        and torch.equal(newest[0], answer)
    )
    return run[:-1] if is_answer else run


def _children(parts: dict[str, nn.Module], name: str) -> list[str]:
    return [f"{name}.{child}" for child, _ in parts[name].named_children()]
