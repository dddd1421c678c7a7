"""Calls of an exported graph, and the register of their translators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from recombine.page.program import Program


class Untranslatable(Exception):
    """What the page's language cannot say, in a few words."""


@dataclass(frozen=True)
class Live:
    """A value that depends on the input."""

    number: int


@dataclass(frozen=True)
class Call:
    """One call of the exported graph."""

    program: Program
    target: Any
    arguments: dict[str, Any]
    shape: tuple[int, ...]
    """Of the first tensor that it returns."""

    def __getitem__(self, name: str) -> Any:
        return self.arguments.get(name)

    def value(self, name: str = "self") -> int:
        """An argument as a value; tensors and numbers become constants."""
        return self.as_value(self.arguments[name])

    def as_value(self, argument: Any) -> int:
        """Anything as a value of the program."""
        if isinstance(argument, Live):
            return argument.number
        return self.program.constant(argument if isinstance(argument, Tensor) else torch.tensor(float(argument)))

    def size(self, name: str = "self") -> tuple[int, ...]:
        """Shape of an argument."""
        argument = self.arguments[name]
        return self.program.shapes[argument.number] if isinstance(argument, Live) else tuple(argument.shape)

    def only(self, name: str) -> None:
        """Refuse a call whose other arguments than this depend on the input."""
        if any(isinstance(a, Live) for key, a in self.arguments.items() if key != name):
            raise Untranslatable("with arguments that depend on the input")


Translator = Callable[[Call], int]
TRANSLATORS: dict[str, Translator] = {}


def translates(*names: str) -> Callable[[Translator], Translator]:
    """Register the translator of some operations."""

    def register(translator: Translator) -> Translator:
        TRANSLATORS.update(dict.fromkeys(names, translator))
        return translator

    return register


def run(call: Call, tensor: Tensor, field: str = "self") -> Tensor:
    """The call itself, on another tensor."""
    return call.target(**{**call.arguments, field: tensor})
