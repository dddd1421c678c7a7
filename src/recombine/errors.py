"""One family of exceptions, and one line for each mistake: "width must be at least 1, got 0".

The command line prints that line and exits with code 2; in Python it is the exception's text.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

LONGEST = 80
"""Characters of an offending value, and of a field's name, that a message repeats."""
NAMED_FAILURES = 5
"""Failed runs that a message names."""
LONGEST_REASON = 160
"""Characters of another library's error that a message repeats."""


class RecombineError(Exception):
    """Base of everything this package raises on purpose.

    Examples
    --------
    >>> import recombine as rc
    >>> try:
    ...     rc.BumpTask(size=0)
    ... except rc.RecombineError as error:
    ...     print(error)
    size must be at least 2, got 0
    """


class InvalidValue(RecombineError, ValueError):
    """A field or an argument has a value that it cannot have.

    Parameters
    ----------
    field
        Which field or argument.
    value
        What was given.
    allowed
        What it must be, in words that follow "must be".

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
        super().__init__(f"{shortened(field)} must be {allowed}, got {_quoted(value)}")

    def __reduce__(self) -> tuple[Any, ...]:  # pickled where it leaves a worker process
        return type(self), (self.field, self.value, self.allowed)


class StoreError(RecombineError):
    """The store cannot be used: unreadable, foreign, full, damaged.

    Examples
    --------
    >>> import recombine as rc
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     try:
    ...         rc.Store(folder, create=False)
    ...     except rc.StoreError:
    ...         print("no store there")
    no store there
    """


class StoreFull(StoreError):
    """The store's disk has no room left; with room, the same call goes on."""


class RunsFailed(RecombineError):
    """Runs that were put aside, each with its reason, after all others had finished.

    Parameters
    ----------
    reasons
        By key of a run, why it failed.
    runs
        How many runs were asked for.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.RunsFailed({"3f2a77": "out of memory"}, runs=4).reasons
    {'3f2a77': 'out of memory'}
    """

    def __init__(self, reasons: Mapping[str, str], runs: int) -> None:
        self.reasons = dict(reasons)
        self.runs = runs
        named = [f"{key[:8]} ({reason})" for key, reason in self.reasons.items()][:NAMED_FAILURES]
        more = len(self.reasons) - len(named)
        others = f" and {more} more" if more else ""
        super().__init__(
            f"runs: {len(self.reasons)} of {runs} failed and were put aside, the others are in the store: "
            f"{listed(named)}{others}; the same command tries them again"
        )


class Interrupted(RecombineError):
    """Stopped by the user; what was done is in the store."""


class DeviceError(RecombineError):
    """The device is absent, or cannot do what a spec needs.

    Examples
    --------
    >>> import recombine as rc
    >>> issubclass(rc.DeviceError, rc.RecombineError)
    True
    """


def _quoted(value: object) -> str:
    """The value as a message repeats it: `repr`, on one line, shortened; of an array its kind and shape."""
    if getattr(value, "shape", ()) and hasattr(value, "dtype"):
        return f"{type(value).__name__} {value.dtype} {tuple(value.shape)}"  # type: ignore[attr-defined]
    return shortened(repr(value))


def shortened(text: str, longest: int = LONGEST) -> str:
    """The text on one line, or its beginning and its end: of a path and of a field in a file, the end says most."""
    text = " ".join(text.split())
    head = longest // 3
    return text if len(text) <= longest else f"{text[:head]}…{text[head + 1 - longest :]}"


def reason_of(error: BaseException | None) -> str:
    """What somebody else's error says, on one line: its type and text, shortened."""
    text = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 1] + "…"


def listed(names: Iterable[object]) -> str:
    """Names as a message lists them."""
    return ", ".join(str(name) for name in names) or "nothing"


def nearest(name: str, known: Iterable[str]) -> str:
    """Up to three known names that are spelt much like a name, as a message lists them; none where none is."""
    return ", ".join(difflib.get_close_matches(name, list(known), n=3))


def typed(value: object) -> str:
    """The value as a flag takes it: `none`, `true`, `6,6`, `0,1;3,4`, `(center:low=2)`."""
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
    """The first complaint of a pydantic `ValidationError` as one line of ours, in shorter words than pydantic's.

    `fields` are the names the model has, for the message about a name it does not have.
    """
    first = error.errors(include_url=False)[0]
    kind, context = first["type"], first.get("ctx", {})
    if isinstance(context.get("error"), InvalidValue):  # raised by a validator or a nested record, and wrapped
        return context["error"]
    field = str(first["loc"][0]) if first["loc"] else str(error.title)  # what follows are positions and union tags
    if kind == "extra_forbidden":
        return InvalidValue("field", field, f"one of {listed(fields)}")
    if kind == "missing":
        return InvalidValue(field, None, "given")
    said = first["msg"].removeprefix("Input should be ")
    if said.startswith("a valid "):
        said = said.split(",")[0].replace("a valid integer", "an integer").replace("a valid ", "a ")
    said = said.replace("greater than or equal to", "at least").replace("less than or equal to", "at most")
    return InvalidValue(field, first["input"], said)
