"""Families of interchangeable parts, by name.

>>> ENCODINGS = Registry("encoding", Encoding)
>>> @ENCODINGS.register
... class Bump(Encoding): ...

A registered class is at once accepted in specs (by name, by text `bump:width=3`, by JSON), listed in errors and on
the command line, and covered by the contract tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from recombine.errors import InvalidValue, listed
from recombine.records import Variant

V = TypeVar("V", bound=Variant)


class Registry(Mapping[str, type[V]], Generic[V]):
    """Named classes of one family."""

    def __init__(self, field: str, base: type[V]) -> None:
        self.field = field
        self.base = base
        self._classes: dict[str, type[V]] = {}

    def register(self, cls: type[V]) -> type[V]:
        """Class decorator: make the class known under its `kind`."""
        if not (isinstance(cls, type) and issubclass(cls, self.base)):
            raise InvalidValue(self.field, cls, f"a subclass of {self.base.__name__}")
        name = cls.kind_name()
        if name in self._classes and self._classes[name] is not cls:
            raise InvalidValue(self.field, name, "a name that is not taken yet")
        if missing := sorted(cls.__abstractmethods__):
            raise InvalidValue(self.field, cls.__name__, f"a class that defines {listed(missing)}")
        self._classes[name] = cls
        return cls

    def unregister(self, name: str) -> None:
        """Forget a class (for tests that register a passing one)."""
        del self._classes[self[name].kind_name()]

    def __getitem__(self, name: str) -> type[V]:
        if name not in self:
            own = "or one of your own, with --import MODULE"
            raise InvalidValue(self.field, name, f"one of {listed(self._classes)} ({own})")
        return self._classes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._classes

    def parse(self, value: Any) -> V:
        """An instance from an instance, a text `name:…` or a mapping with `kind`."""
        if isinstance(value, self.base):
            return value
        try:
            if isinstance(value, str):
                name, *parts = value.split(":")
                return self[name].from_text(parts)
            if isinstance(value, Mapping) and all(isinstance(name, str) for name in (value.get("kind"), *value)):
                return self[value["kind"]](**value)
        except InvalidValue as error:
            if error.field.split(".")[0] == self.field:
                raise
            raise InvalidValue(f"{self.field}.{error.field}", error.value, error.allowed) from None
        raise InvalidValue(self.field, value, f"one of {listed(self._classes)}")
