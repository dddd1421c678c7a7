"""How a user's module is called: which method, with which extra arguments, and which returned tensor is its output.

A returned tensor is named by the keys, indices and attributes that lead to it, joined by dots: `sample` in a dict,
`1.mean` in a tuple whose second entry has an attribute `mean`. The name of a single returned tensor is empty.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor, nn

from recombine.errors import InvalidValue, listed, without_exit

FORWARD = "forward"
NAMED, SHOWN = 6, 12
"""Maximum numbers of names in a note and in an error message."""

Method = str | Callable[..., object]
"""Name of a module's method, or a function of the module and its inputs."""


@dataclass(frozen=True)
class Call:
    """Calls a module and returns its output."""

    method: Method = FORWARD
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    output: str | int | None = None
    """Name of the output; None for everything that the module returns."""

    @classmethod
    def of(
        cls, module: nn.Module, method: Method | None, kwargs: Mapping[str, Any] | None, output: str | int | None
    ) -> Self:
        """Return the call; raise if the module has no such method, or the method has no such arguments."""
        method = FORWARD if method is None else method
        inner: Any = getattr(module, "_orig_mod", module)  # `torch.compile` hides the methods
        function = getattr(inner, method, None) if isinstance(method, str) else method
        if not callable(function):
            classes = [cls for cls in type(inner).__mro__ if not issubclass(nn.Module, cls)]
            names = [name for cls in classes for name, value in vars(cls).items() if name[0] != "_" and callable(value)]
            allowed = f"a method of {type(inner).__name__} ({_few(list(dict.fromkeys(names)), SHOWN)})"
            raise InvalidValue("call", method, allowed)
        parameters: list[inspect.Parameter] = []
        with suppress(TypeError, ValueError):  # built-in functions have no signature
            parameters = list(inspect.signature(function).parameters.values())
        names = [own.name for own in parameters[1 if isinstance(method, str) else 2 :]]
        unknown = [name for name in kwargs or {} if name not in names]
        if parameters and unknown and not any(own.kind is inspect.Parameter.VAR_KEYWORD for own in parameters):
            allowed = f"one of the other arguments of {getattr(function, '__name__', method)} ({listed(names)})"
            raise InvalidValue("kwargs", unknown[0], allowed)
        return cls(method, dict(kwargs or {}), output)

    def __call__(self, module: nn.Module, inputs: Tensor) -> object:
        """Return the output, or all that the module returns."""
        with without_exit("module", type(module).__name__):
            if not isinstance(self.method, str):
                returned = self.method(module, inputs, **self.kwargs)
            else:
                method = module if self.method == FORWARD else getattr(module, self.method)
                returned = method(inputs, **self.kwargs)
        return returned if self.output is None else self._chosen(returned)

    def _chosen(self, returned: object) -> object:
        part = returned
        for key in str(self.output).split("."):
            inner = _inside(part)
            # properties, such as the mean of a distribution, are attributes too
            part = inner[key] if key in inner else None if isinstance(part, Tensor) else getattr(part, key, None)
        if not named_tensors(part):
            names = [name for name, _ in named_tensors(returned)]
            allowed = "omitted for a module that returns one tensor" if names == [""] else f"one of {listed(names)}"
            raise InvalidValue("output", self.output, allowed)
        return part


def named_tensors(returned: object) -> list[tuple[str, Tensor]]:
    """Return all dense floating-point tensors in a tensor or in nested tuples, lists, mappings and objects, by name."""
    seen: set[int] = set()

    def found(value: object, names: tuple[str, ...]) -> Iterator[tuple[str, Tensor]]:
        if isinstance(value, Tensor):
            if value.is_floating_point() and not value.is_nested and value.layout == torch.strided:
                yield ".".join(names), value
        elif len(names) < 6 and id(value) not in seen:
            seen.add(id(value))
            for name, inner in _inside(value).items():
                yield from found(inner, (*names, name))

    return list(found(returned, ()))


def _inside(value: object) -> dict[str, object]:
    """Return the entries of a mapping, tuple or list, or the attributes of an object, by name."""
    if isinstance(value, (nn.Module, type, Tensor)):
        return {}
    if isinstance(value, (tuple, list)):
        return {str(index): entry for index, entry in enumerate(value)}
    entries = value if isinstance(value, Mapping) else getattr(value, "__dict__", {})
    return {str(key): entry for key, entry in entries.items()} if isinstance(entries, Mapping) else {}


def output_notes(kind: str, names: list[str], measured: int) -> list[str]:
    """Return a note if the module returns several tensors, in an object of this type."""
    if len(names) < 2:
        return []
    return [f"the module returns {_few(names, NAMED)} ({kind}); {names[measured]} was measured; choose with output="]


def _few(names: list[str], most: int) -> str:
    return listed(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
