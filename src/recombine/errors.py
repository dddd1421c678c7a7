"""Exceptions, with one-line messages such as "width must be at least 1, got 0"."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

LONGEST = 80
"""Maximum length of a quoted value or field name."""
LONGEST_REASON = 160
"""Maximum length of a quoted message from another library."""
MOST_FAILURES_NAMED = 5


class RecombineError(Exception):
    """Base class of this package's exceptions.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.BumpTask(size=0)
    Traceback (most recent call last):
    ...
    recombine.errors.InvalidValue: size must be at least 2, got 0
    """


class InvalidValue(RecombineError, ValueError):
    """An invalid value of a field or argument.

    Parameters
    ----------
    field
        Name of the field or argument.
    value
        The invalid value.
    allowed
        Description of allowed values, which follows "must be" in the message.

    Examples
    --------
    >>> import recombine as rc
    >>> try:
    ...     rc.CNN(width=0)
    ... except rc.InvalidValue as error:
    ...     print(error.field, error.value, error.allowed, sep="; ")
    width; 0; at least 1
    """

    def __init__(self, field: str, value: object, allowed: str) -> None:
        self.field = field
        self.value = value
        self.allowed = allowed
        if getattr(value, "shape", ()) and hasattr(value, "dtype"):
            got = f"{type(value).__name__} {value.dtype} {tuple(value.shape)}"  # type: ignore[attr-defined]
        else:
            got = shortened(repr(value))
        super().__init__(f"{shortened(field)} must be {allowed}, got {got}")

    def __reduce__(self) -> tuple[Any, ...]:  # for pickling in worker processes
        return type(self), (self.field, self.value, self.allowed)


class StoreError(RecombineError):
    """A store cannot be used: it is unreadable, damaged, on a full disk, or not a store.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.Store("nowhere", create=False)
    Traceback (most recent call last):
    ...
    recombine.errors.StoreError: store must be an existing store, got 'nowhere'
    """


class RunsFailed(RecombineError):
    """Some runs failed; all others were completed.

    Parameters
    ----------
    reasons
        Reason for each failure, by run key.
    runs
        Total number of runs.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.RunsFailed({"3f2a77": "out of memory"}, runs=4).reasons
    {'3f2a77': 'out of memory'}
    """

    def __init__(self, reasons: Mapping[str, str], runs: int) -> None:
        self.reasons = dict(reasons)
        self.runs = runs
        named = [f"{key[:8]} ({reason})" for key, reason in self.reasons.items()][:MOST_FAILURES_NAMED]
        more = len(self.reasons) - len(named)
        others = f" and {more} more" if more else ""
        super().__init__(
            f"{len(self.reasons)} of {runs} runs failed: {listed(named)}{others}; the others are in the store, and "
            "the same command retries the failed ones"
        )


class Interrupted(RecombineError):
    """The user interrupted training; completed runs are in the store."""


class DeviceError(RecombineError):
    """The device does not exist or does not support the spec.

    Examples
    --------
    >>> import recombine as rc
    >>> issubclass(rc.DeviceError, rc.RecombineError)
    True
    """


@contextmanager
def without_exit(field: str, value: object) -> Iterator[None]:
    """Turn `sys.exit()` in a user's code into an error, since it would end the program without a word."""
    try:
        yield
    except SystemExit as error:
        raise InvalidValue(field, value, f"code that does not exit ({reason_of(error)})") from error


def shortened(text: str, longest: int = LONGEST) -> str:
    """Return the text on one line, cutting the middle if it is long, since the end of a path matters most."""
    text = " ".join(text.split())
    head = longest // 3
    return text if len(text) <= longest else f"{text[:head]}…{text[head + 1 - longest :]}"


def reason_of(error: BaseException | None) -> str:
    """Return the type and text of another library's error on one line, shortened."""
    text = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 1] + "…"


def listed(names: Iterable[object]) -> str:
    """Return names separated by commas."""
    return ", ".join(str(name) for name in names) or "nothing"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return up to three known names with a similar spelling, separated by commas."""
    return ", ".join(difflib.get_close_matches(name, list(known), n=3))


def typed(value: object) -> str:
    """Return a value as it is written in a flag, e.g. `none`, `true`, `6,6`, `0,1;3,4`, `(center:low=2)`."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        if any(isinstance(part, list | tuple) for part in value):
            return ";".join(typed(part) for part in value)
        return ",".join(typed(part) for part in value) + ("," if len(value) == 1 else "")
    text = str(value)
    return f"({text})" if ":" in text else text


def from_pydantic(error: Any, fields: Iterable[str]) -> InvalidValue:
    """Return the first error in a pydantic `ValidationError` as an `InvalidValue`; `fields` are the known fields."""
    first = error.errors(include_url=False)[0]
    kind, context = first["type"], first.get("ctx", {})
    if isinstance(context.get("error"), InvalidValue):  # raised by a validator or a nested record
        return context["error"]
    field = str(first["loc"][0]) if first["loc"] else str(error.title)  # the rest are positions and union tags
    if kind == "extra_forbidden":
        return InvalidValue("field", field, f"one of {listed(fields)}")
    if kind == "missing":
        return InvalidValue(field, None, "given")
    if kind in ("too_short", "too_long"):
        bound = f"at least {context['min_length']}" if kind == "too_short" else f"at most {context['max_length']}"
        return InvalidValue(field, first["input"], f"a list of {bound} values")
    allowed = first["msg"].removeprefix("Input should be ")
    if allowed.startswith("a valid "):
        allowed = allowed.split(",")[0].replace("a valid integer", "an integer").replace("a valid ", "a ")
    allowed = allowed.replace("greater than or equal to", "at least").replace("less than or equal to", "at most")
    return InvalidValue(field, first["input"], allowed)
