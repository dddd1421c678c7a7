"""What arguments may be: the checks that every public function shares.

Each check returns the value, or raises one line that names the field, the value and what is allowed. `checked` holds
all arguments of a function against its own annotations, so that a signature is a promise and not a wish: types, choices
(`Literal`), finite numbers, and the axes of tensors, which must be as long in one argument as in the others.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from numbers import Integral, Rational, Real
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from recombine.errors import InvalidValue, RecombineError, listed, reason_of

T = TypeVar("T")
P = ParamSpec("P")
LARGEST_WHOLE = 2**63 - 1
"""Whole numbers above this fit no tensor, no file and no random generator."""
DENSE = "torch.strided"
"""Layout of tensors that have a number in every place; few operations know any other."""


def one_of(field: str, value: Any, choices: Iterable[T]) -> T:
    """The choice that the value is."""
    choices = list(choices)
    for choice in choices:
        if type(value) is type(choice) and value == choice:
            return choice
    raise InvalidValue(field, value, f"one of {listed(choices)}")


def whole_number(field: str, value: Any, at_least: int = 1, at_most: int = LARGEST_WHOLE) -> int:
    """The value as an `int` between two bounds, both included."""
    if _is_whole(value) and at_least <= value <= at_most:
        return int(value)
    upper = f" and at most {at_most}" if at_most != LARGEST_WHOLE else ""
    raise InvalidValue(field, value, f"an integer, at least {at_least}{upper}")


def number(
    field: str,
    value: Any,
    *,
    at_least: float = -math.inf,
    above: float = -math.inf,
    at_most: float = math.inf,
    or_infinity: bool = False,
) -> float:
    """The value as a finite `float` within the bounds."""
    if or_infinity and isinstance(value, float) and value == math.inf:
        return value
    if _is_finite(value) and at_least <= value <= at_most and value > above:
        return float(value)
    bounds = {"at least": at_least, "greater than": above, "at most": at_most}
    stated = [f"{words} {bound:g}" for words, bound in bounds.items() if math.isfinite(bound)]
    raise InvalidValue(field, value, ", ".join(["a finite number", *stated]))


def items(field: str, values: Any, kind: type[T], *, example: str, lone: bool = True) -> list[T]:
    """All of an iterable, each an instance of `kind`; a lone instance is a list of one, unless that is a mistake."""
    if lone and isinstance(values, kind):
        return [values]
    try:
        iterator = None if isinstance(values, (str, bytes, Mapping)) else iter(values)
    except TypeError:  # not an iterable, or one that only seems so, as an array without axes
        iterator = None
    if iterator is None:
        raise InvalidValue(field, values, example)
    elements = list(iterator)
    for position, element in enumerate(elements):
        if not isinstance(element, kind):
            raise InvalidValue(f"{field}[{position}]", element, example)
    return elements


def given_path(field: str, value: Any) -> Path:
    """The value as a path that an operating system can be asked for."""
    try:
        if b"\0" in os.fsencode(text := os.fspath(value)) or not isinstance(text, str):
            raise ValueError
    except (TypeError, ValueError):  # not a path at all, or not one that can be written in bytes
        raise InvalidValue(field, value, "a path") from None
    return Path(text)


def finite(field: str, tensor: Any) -> None:
    """Refuse a tensor that is empty or holds NaN or infinity: matrices of such numbers have no decomposition."""
    if not tensor.numel() or not bool(tensor.isfinite().all()):
        raise InvalidValue(field, tensor, "finite numbers, at least one")


@contextmanager
def users_function(field: str, function: Any) -> Iterator[None]:
    """Say in one line what a user's own function raises, with that error as the cause."""
    try:
        yield
    except RecombineError:
        raise
    except Exception as error:
        raise InvalidValue(field, function, f"a function that takes what it is given ({reason_of(error)})") from error


def grid_shape(shape: Any, points: int) -> tuple[int, ...]:
    """The shape of a grid with so many points."""
    if not (fits(shape, Sequence[int]) and len(shape) and min(shape) >= 1 and math.prod(shape) == points):
        raise InvalidValue("grid", shape, f"a shape with {points} combinations")
    return tuple(int(count) for count in shape)


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """The function, refusing in one line every argument that is not what its annotation says."""
    signature = inspect.signature(function)

    @cache
    def hints() -> dict[str, Any]:  # when first called: annotations may name what is defined further down
        return get_type_hints(function, include_extras=True)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        from jaxtyping import jaxtyped

        arguments = signature.bind(*args, **kwargs).arguments
        with jaxtyped("context"):  # in which axes of one name have one length
            for name, value in arguments.items():
                if name in hints() and not fits(value, hints()[name]):
                    raise InvalidValue(name, value, in_words(hints()[name]))
        return function(*args, **kwargs)

    return cast(Callable[P, T], call)


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is what an annotation says."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any or isinstance(hint, TypeVar):
        return True
    if origin is Annotated:
        return fits(value, inner[0])
    if origin in (Union, UnionType):
        return any(fits(value, part) for part in inner)
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in inner)
    if hint is None or hint is float or hint is int:
        return value is None if hint is None else _is_finite(value) if hint is float else _is_whole(value)
    if origin in (tuple, list, Sequence):
        plain = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
        return plain and all(fits(element, inner[0]) for element in value)
    if origin in (dict, Mapping):
        pairs = value.items() if isinstance(value, Mapping) else ()
        return isinstance(value, Mapping) and all(fits(k, inner[0]) and fits(v, inner[1]) for k, v in pairs)
    if origin is Callable or hint is Callable:
        return callable(value)
    if hasattr(hint, "dim_str") and str(getattr(value, "layout", DENSE)) != DENSE:
        return False
    return isinstance(value, origin or hint)


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_finite(value: Any) -> bool:
    if isinstance(value, Integral):  # torch takes whole numbers up to its own largest one
        return _is_whole(value) and abs(int(value)) <= LARGEST_WHOLE
    return isinstance(value, Real) and not isinstance(value, Rational) and math.isfinite(value)


PLAIN = {int: "an integer", float: "a finite number", str: "a string", bool: "true or false", type(None): "nothing"}
TENSORS = {"Float": "a floating tensor", "Int": "a tensor of integers", "Bool": "a boolean tensor"}


def in_words(hint: Any) -> str:
    """What an annotation allows."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return in_words(inner[0])
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(in_words(part) for part in inner))
    if origin is Literal:
        return f"one of {listed(inner)}"
    if origin in (tuple, list, Sequence):
        return f"a list, each {in_words(inner[0])}"
    if origin in (dict, Mapping):
        return f"a mapping to {in_words(inner[1])}"
    if origin is Callable or hint is Callable:
        return "a function"
    if hasattr(hint, "dim_str"):
        family = TENSORS.get(hint.__name__.partition("[")[0], "a tensor")
        return f"{family} with axes '{hint.dim_str}', as long as in the other arguments"
    return PLAIN.get(hint) or f"an instance of {getattr(origin or hint, '__name__', hint)}"
