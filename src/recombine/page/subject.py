"""Decoders for an explorer page: copies of modules on the CPU, their codes, and their outputs at grid points."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from recombine.diagnosis.calling import Call, named_tensors, output_notes  # noqa: F401  of inherited fields
from recombine.diagnosis.running import ROWS_AT_ONCE, refuse_unfinished, seed_generators, uncompiled
from recombine.diagnosis.subject import Subject, Targets, Trained, run_name  # noqa: F401  of inherited fields
from recombine.encodings import Bump, Circular, Encoding, OneHot, Polar, Positional, Ramp, Rate
from recombine.errors import InvalidValue, reason_of
from recombine.factors import FactorGrid
from recombine.metrics.stages import Encode
from recombine.page.calls import code_line
from recombine.specs import RunSpec
from recombine.tasks import ArrayTask  # noqa: F401  of inherited fields

BLANK_SAMPLE = 256
"""Number of grid points whose outputs give the background of a module without targets."""
LARGEST_ARRAY = 2**25
"""Size in bytes up to which arrays of a batch are reused; glibc returns larger ones to the system when they are freed,
and mapping them again takes longer than computing them (a transformer's attention: 10 MB per row)."""
KNOWN = (Bump, OneHot, Rate, Ramp, Positional, Polar, Circular)
"""Encodings that the page can compute itself (`script/grid.js`)."""


@dataclass(frozen=True)
class PageDecoder(Subject):
    """A decoder with its grid and data; its module is a float32 copy on the CPU in evaluation mode."""

    spec: RunSpec | None = None
    """The spec of a trained run, which says what it was trained on; None for a module."""
    measured: Mapping[str, np.ndarray] = field(default_factory=dict)
    """What `recombine.page.model.measured` returned for it, if a results folder has kept that."""

    @classmethod
    def of(cls, decoder: Any, *args: Any, **settings: Any) -> Self:
        """Build the subject as in `Subject.of`, but copy the module."""
        subject = super().of(decoder, *args, **settings)
        module = uncompiled(subject.module)
        refuse_unfinished(module)
        given = subject.call.kwargs.items()
        kwargs = {name: own.cpu() if isinstance(own, Tensor) else own for name, own in given}
        call = replace(subject.call, kwargs=kwargs)
        spec = None if isinstance(decoder, nn.Module) else decoder.spec
        measured = getattr(decoder, "measured", {}) if spec else {}
        try:
            copied = copy.deepcopy(module).cpu().float().eval()
        except Exception as error:  # hooks and handles that cannot be copied
            allowed = f"a module that can be copied ({reason_of(error)})"
            raise InvalidValue("module", subject.name, allowed) from error
        own = replace(subject, call=call, module=copied, spec=spec, measured=measured)
        if own.targets is not None or settings.get("background") is not None:
            return own
        # without targets, what the module draws at most pixels is its blank
        points = torch.linspace(0, own.grid.size - 1, min(own.grid.size, BLANK_SAMPLE)).long()
        return replace(own, background=float(own.outputs(own.grid.rows(points)).median()))

    @property
    def levels(self) -> dict[str, list[str]]:
        """Values of string-valued factors, by name."""
        labels = {factor.name: factor.labels or () for factor in self.grid.factors}
        return {name: list(own) for name, own in labels.items() if own and all(isinstance(one, str) for one in own)}

    def inputs(self, values: Tensor) -> Tensor:
        """Return the module's inputs for the given rows of factor values."""
        inputs = super().inputs(values)
        return inputs.float() if inputs.is_floating_point() else inputs

    @cached_property
    def is_random(self) -> bool:
        """Whether the module returns different outputs for the same inputs."""
        last = self.grid.size - 1
        rows = self.inputs(self.grid.rows(torch.tensor([0, last // 2, last])))
        return not torch.equal(*(self._batch(rows.clone())[0].nan_to_num() for _ in range(2)))

    @cached_property
    def rows_at_once(self) -> int:
        """Number of rows whose arrays are at most `LARGEST_ARRAY` bytes each."""
        rows = self.inputs(self.grid.rows(torch.tensor([0, self.grid.size - 1])))
        with _LargestArray() as largest:
            self._batch(rows.clone())
        return max(1, min(ROWS_AT_ONCE, LARGEST_ARRAY * len(rows) // largest.bytes))

    def outputs(self, values: Tensor) -> Tensor:
        """Return outputs `(row, …)` for rows of factor values; every row of a stochastic module uses the same seed."""
        parts = []
        for part in self.inputs(values).split(1 if self.is_random else self.rows_at_once):
            if self.is_random:
                seed_generators(part.device)
            parts.append(self._batch(part.clone())[0])
        return torch.cat(parts)

    @property
    def output_notes(self) -> list[str]:
        """Which of several tensors returned by the module is shown."""
        return self._batch(self.inputs(self.grid.rows(torch.tensor([0, self.grid.size - 1]))))[1]

    @torch.no_grad()
    def _batch(self, inputs: Tensor) -> tuple[Tensor, list[str]]:
        try:
            returned = self.call(self.module, inputs)
        except InvalidValue:
            raise
        except IndexError as error:
            reason = f"an index is out of range{code_line(error)}; encode= maps factor values to the module's inputs"
            allowed = f"a module that runs at every grid point: {reason}"
            raise InvalidValue("module", self.name, allowed) from error
        except Exception as error:  # a user's module may raise anything
            allowed = f"a module that runs at every grid point ({reason_of(error)})"
            raise InvalidValue("module", self.name, allowed) from error
        named = named_tensors(returned)
        shown = next((k for k, (_, rows) in enumerate(named) if rows.shape[:1] == inputs.shape[:1]), None)
        if shown is None or named[shown][1].numel() == 0:
            allowed = "a module whose output has a row of real numbers for every input row"
            raise InvalidValue("module", self.name, allowed)
        notes = output_notes(type(returned).__name__, [name for name, _ in named], shown)
        return named[shown][1].float(), notes


class _LargestArray(TorchDispatchMode):
    """The size in bytes of the largest array computed within the context."""

    bytes = 1

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        returned = function(*args, **(kwargs or {}))
        arrays = [own for own in tree_leaves(returned) if isinstance(own, Tensor)]
        self.bytes = max([self.bytes, *(own.nbytes for own in arrays)])
        return returned


def page_decoders(given: Any, **settings: Any) -> list[PageDecoder]:
    """Return decoders for one or several modules or runs, all on the same grid."""
    parts = parts_of(given)
    if not parts:
        raise InvalidValue("module", given, "at least one module or run")
    names = list(given) if isinstance(given, Mapping) else [_default_name(part) for part in parts]
    distinct = [
        name if names.count(name) == 1 else f"{name} · {names[: k + 1].count(name)}" for k, name in enumerate(names)
    ]
    decoders = [PageDecoder.of(part, name=name, **settings) for name, part in zip(distinct, parts, strict=True)]
    first = decoders[0]
    for own in decoders:
        if own.grid != first.grid:
            allowed = f"on the same grid as {first.name}, {first.grid.shape} {first.grid.names}"
            raise InvalidValue("module", own.name, allowed)
    return decoders


def parts_of(given: Any) -> list[Any]:
    """Return modules or runs as a list."""
    if isinstance(given, Mapping):
        return list(given.values())
    return list(given) if isinstance(given, Sequence) and not isinstance(given, (str, bytes)) else [given]


def _default_name(part: Any) -> str:
    is_run = isinstance(part, Trained) and not isinstance(part, nn.Module)
    return run_name(part.spec) if is_run else type(part).__name__


class Called(nn.Module):
    """A module that is called as requested, and encodes factor values if the page cannot."""

    def __init__(self, subject: PageDecoder, *, encodes: bool) -> None:
        super().__init__()
        self.module, self.call = subject.module, subject.call
        self.inputs = subject.inputs if encodes else None

    def forward(self, values: Tensor) -> Any:
        return self.call(self.module, values if self.inputs is None else self.inputs(values))


def factor_codes(encoding: Encode | Encoding | None, grid: FactorGrid) -> list[Encoding] | None:
    """Return each factor's encoding (default: raw values, `Rate`), or None for a user-defined encoding function."""
    if encoding is None:
        return [Rate()] * len(grid.factors)
    return [encoding.of(factor) for factor in grid.factors] if isinstance(encoding, Encoding) else None


def smooth_factors(encoding: Encode | Encoding | None, grid: FactorGrid) -> list[bool]:
    """Return, for each factor, whether it may take values between grid points."""
    codes = factor_codes(encoding, grid)
    return [
        factor.form != "category" and (codes is None or codes[k].differentiable)
        for k, factor in enumerate(grid.factors)
    ]


def mean_code(codes: Sequence[Encoding], grid: FactorGrid, held_out: Bool[Tensor, " point"]) -> Float[Tensor, " code"]:
    """Return the mean code over all combinations that are not held out."""
    kept = (~held_out).reshape(grid.shape)
    means = []
    for axis, (factor, code) in enumerate(zip(grid.factors, codes, strict=True)):
        counts = kept.sum(dim=[k for k in range(kept.ndim) if k != axis]) if kept.ndim > 1 else kept.long()
        means.append(counts.double() @ code.code(factor.values, factor).double() / counts.sum())
    return torch.cat(means).float()
