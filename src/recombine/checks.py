"""What arguments may be, for `store` and `page`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from recombine.errors import InvalidValue, RecombineError, listed, reason_of

T = TypeVar("T")


def one_of(field: str, value: Any, choices: Iterable[T]) -> T:
    """The choice that the value is."""
    choices = list(choices)
    if value not in choices:
        raise InvalidValue(field, value, f"one of {listed(choices)}")
    return value


def whole_number(field: str, value: Any, at_least: int = 1, at_most: int = 2**63 - 1) -> int:
    """The value as an `int` between two bounds, both included."""
    if not isinstance(value, int) or not at_least <= value <= at_most:
        raise InvalidValue(field, value, f"an integer, at least {at_least}")
    return value


def number(field: str, value: Any) -> float:
    """The value as a `float`."""
    if not isinstance(value, int | float):
        raise InvalidValue(field, value, "a number")
    return float(value)


def items(field: str, values: Any, kind: type[T], *, example: str, lone: bool = True) -> list[T]:
    """All of an iterable, each an instance of `kind`; a lone instance is a list of one, unless that is a mistake."""
    if lone and isinstance(values, kind):
        return [values]
    if not isinstance(values, Iterable) or isinstance(values, str):
        raise InvalidValue(field, values, example)
    elements = list(values)
    if not all(isinstance(element, kind) for element in elements):
        raise InvalidValue(field, values, example)
    return elements


def given_path(field: str, value: Any) -> Path:
    """The value as a path."""
    if not isinstance(value, str | os.PathLike):
        raise InvalidValue(field, value, "a path")
    return Path(value)


@contextmanager
def users_function(field: str, function: Any) -> Iterator[None]:
    """Say in one line what a user's own function raises, with that error as the cause."""
    try:
        yield
    except RecombineError:
        raise
    except Exception as error:
        raise InvalidValue(field, function, f"a function that takes what it is given ({reason_of(error)})") from error
