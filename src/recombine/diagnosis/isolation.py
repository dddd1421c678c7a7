"""Contexts in which somebody's module is run: left exactly as it was, and differentiable where it can be."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import numpy as np
import torch
from torch import Tensor, nn
from torch.amp.autocast_mode import is_autocast_available
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parallel import DistributedDataParallel

from recombine.diagnosis.hooks import Forward, without_autocast
from recombine.errors import InvalidValue

SHARDED = ("DTensor", "FlatParameter")
"""Parameters of which each process has a part."""


def uncompiled(module: nn.Module) -> nn.Module:
    """The module that `torch.compile` wrapped, or the module itself."""
    inner = getattr(module, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else module


def unwrapped(module: nn.Module) -> nn.Module:
    """The module inside `torch.compile`, `DistributedDataParallel` and `DataParallel`, in any order."""
    while True:
        inner = module.module if isinstance(module, (DistributedDataParallel, nn.DataParallel)) else uncompiled(module)
        if inner is module:
            return module
        module = inner


def refuse_unfinished(module: nn.Module) -> None:
    """Refuse lazy layers, which running would give their shape for good, and weights that are sharded."""
    for name, part in module.named_modules():
        if isinstance(part, LazyModuleMixin) and part.has_uninitialized_params():  # type: ignore[misc]
            allowed = "a module whose lazy layers have their shapes: run it once on an input of yours"
            raise InvalidValue("module", f"{type(part).__name__} {name}".strip(), allowed)
    for name, weight in module.named_parameters():
        if type(weight).__name__ in SHARDED:
            raise InvalidValue("module", name, "a module whose weights are whole in this process, not sharded (FSDP)")


@contextmanager
def as_called(module: nn.Module, device: torch.device) -> Iterator[Forward]:
    """A function that runs the module under the caller's autocast; outside it measurements have full precision.

    Inference mode, which has no forward-mode derivatives, is left for the time.
    """
    kind = device.type
    enabled = is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    dtype = torch.get_autocast_dtype(kind) if enabled else None

    def forward(inputs: Tensor) -> object:
        with torch.autocast(kind, dtype=dtype):
            return module(inputs)

    with torch.inference_mode(False), without_autocast(kind):
        yield forward if enabled else module


@contextmanager
def undisturbed(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; everything as it was afterwards."""
    parts = list(module.modules())
    flags = [part.training for part in parts]
    contents = [(buffer, buffer.clone()) for buffer in module.buffers()]
    attributes = [
        (held, dict(held))
        for part in parts if not isinstance(part, torch.jit.ScriptModule)  # which keeps its state out of reach
        for held in (part._parameters, part._buffers, part._modules, part.__dict__)
    ]  # fmt: skip
    tensors = (*module.parameters(), *module.buffers())
    devices = sorted({tensor.device.index or 0 for tensor in tensors if tensor.device.type == "cuda"})
    own_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=devices):
        with suppress(NotImplementedError):  # an exported program keeps the mode that it was exported in
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
def differentiable(module: nn.Module) -> Iterator[None]:
    """Without compiled code and the fused kernels that have no forward-mode derivative."""
    recurrent = any(isinstance(part, nn.RNNBase) for part in module.modules())
    fast, onednn = torch.backends.mha.get_fastpath_enabled(), torch.backends.mkldnn.enabled
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with ExitStack() as stack:
            if "torch._dynamo" in sys.modules:  # whoever compiled something has loaded it; loading takes seconds
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            if recurrent:
                # not by `mkldnn.flags`, which sets TF32 as well, and warns where there is none
                torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
                stack.enter_context(torch.backends.cudnn.flags(enabled=False))
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        torch.backends.mkldnn.enabled = onednn
