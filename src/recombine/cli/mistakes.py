"""A user's mistake as one line: the flag and the value as they were typed, and what is allowed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from cyclopts import CycloptsError
from cyclopts.exceptions import (
    CoercionError,
    MissingArgumentError,
    RepeatArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from recombine.cli.options import FLAGS
from recombine.errors import InvalidValue, RecombineError, listed

NUMBERS: dict[object, str] = {int: "a whole number", float: "a number"}


def message(error: RecombineError, words: list[str]) -> str:
    """What was wrong, in the words of the command that was typed."""
    given = typed_flags(words)
    if isinstance(error, InvalidValue):
        flag = _flag(error.field, given)
        return str(InvalidValue(flag or error.field, _value(error.value, given.get(flag or "", [])), error.allowed))
    field, colon, rest = str(error).partition(": ")
    return f"{_flag(field, given) or field}{colon}{rest}"


def typed_flags(words: list[str]) -> dict[str, list[str]]:
    """The values of each flag, as typed."""
    given: dict[str, list[str]] = {}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            given.setdefault(flag, []).append(value if equals else following)
    return given


def _flag(field: str, given: Mapping[str, list[str]]) -> str | None:
    """The flag that gave a field its value; None where no flag did."""
    for name in (field, FLAGS.get(field, field)):
        for flag in (f"--{name}", f"--{name.replace('_', '-')}"):
            if flag in given:
                return flag
    return f"--set {field}" if any(change.startswith(f"{field}=") for change in given.get("--set", [])) else None


def _value(value: Any, given: list[str]) -> Any:
    """The value as it was typed, where it is the one that was."""
    return next((text for text in given if _same(text, value)), value)


def _same(text: str, value: Any) -> bool:
    if isinstance(value, str):
        return text == value or (":" in value and text.split(":")[0] == value.split(":")[0])
    if isinstance(value, bool) or not isinstance(value, int | float):
        return text == str(value)
    try:
        return float(text) == value
    except ValueError:
        return False


def parser_message(error: CycloptsError, words: list[str], commands: list[str]) -> str:
    """A parser's complaint in the form of all others: field, value, what is allowed."""
    command = " ".join(["recombine", *(error.command_chain or ())])
    if isinstance(error, UnknownOptionError):
        word = str(error.token.keyword or error.token.value)
        return str(InvalidValue("option", word, _nearest(word, _options(error), f"'{command} --help' lists them")))
    if isinstance(error, UnknownCommandError):
        known = [name for name in error.app if not name.startswith("-")] if error.app else commands
        word = next((word for word in words if word not in (error.command_chain or ())), "")
        return str(InvalidValue("command", word, listed(known)))
    if isinstance(error, UnusedCliTokensError):
        extra = " ".join(error.unused_tokens or ())
        return str(InvalidValue("arguments", extra, f"options only ('{command} --help' lists them)"))
    field, value = _argument(error)
    if isinstance(error, MissingArgumentError):
        return str(InvalidValue(field, "", f"a value ('{command} --help' says which)"))
    if isinstance(error, RepeatArgumentError):
        return str(InvalidValue(field, value, "one value; it was given twice"))
    allowed = NUMBERS.get(getattr(error, "target_type", None)) or str(error).rstrip(".")
    return str(InvalidValue(field, value, f"{allowed} ('{command} --help' says what is)"))


def _argument(error: CycloptsError) -> tuple[str, str]:
    """The flag as typed, or an argument's name in lower case; and its value."""
    token = getattr(error, "token", None) if isinstance(error, CoercionError | RepeatArgumentError) else None
    if token is not None and token.keyword:
        return str(token.keyword), str(token.value)
    name = error.argument.name if error.argument is not None else "arguments"
    return name if name.startswith("--") else name.lower(), str(token.value) if token is not None else ""


def _options(error: CycloptsError) -> list[str]:
    collection: Any = error.app.assemble_argument_collection() if error.app else []
    return [name for argument in collection for name in argument.names]


def _nearest(word: str, known: list[str], otherwise: str) -> str:
    close = difflib.get_close_matches(re.sub("=.*", "", word), known, n=3)
    return f"{listed(close)} ({otherwise})" if close else otherwise
