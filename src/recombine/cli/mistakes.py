"""A user's mistake as one line: the flag and the value as they were typed, and what is allowed."""

from __future__ import annotations

import os
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
from recombine.errors import InvalidValue, RecombineError, listed, nearest, quoted, typed

NUMBERS: dict[object, str] = {int: "a whole number", float: "a number", bool: "true or false"}
ARGUMENTS = {("report", "from"): "folder"}
"""What a command calls a field, where that differs and is no flag."""
VARIABLE = "RECOMBINE_STORE"


def message(error: RecombineError, words: list[str]) -> str:
    """What was wrong, in the words of the command that was typed."""
    flags = typed_flags(words)
    if isinstance(error, InvalidValue):
        flag = _flag(error.field, flags)
        field = flag or _part(error, flags) or ARGUMENTS.get((words[0] if words else "", error.field), error.field)
        allowed = error.allowed.replace("or allow_unseen", "or --allow-unseen")
        return str(InvalidValue(field, _value(error.value, flags.get(flag or "", [])), allowed))
    field, colon, rest = str(error).partition(": ")
    is_set = bool(os.environ.get(VARIABLE)) and rest.startswith(repr(os.environ[VARIABLE]))
    usual = VARIABLE if field == "store" and is_set else field
    return f"{_flag(field, flags) or usual}{colon}{rest}"


def typed_flags(words: list[str]) -> dict[str, list[str]]:
    """The values of each flag, as typed."""
    flags: dict[str, list[str]] = {}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            flags.setdefault(flag, []).append(value if equals else following)
    return flags


def _flag(field: str, flags: Mapping[str, list[str]]) -> str | None:
    """The flag that gave a field its value; None where no flag did."""
    for name in (field, FLAGS.get(field, field)):
        for flag in (f"--{name}", f"--{name.replace('_', '-')}"):
            if flag in flags:
                return flag
    return f"--set {field}" if any(change.startswith(f"{field}=") for change in flags.get("--set", [])) else None


def _part(error: InvalidValue, flags: Mapping[str, list[str]]) -> str | None:
    """`--holdout center:6:22: high` for a field of a part that a flag gave as a text."""
    part, _, field = error.field.partition(".")
    texts = flags.get(f"--{part}", [])
    if len(texts) > 1:
        texts = [text for text in texts if typed(error.value) in re.split("[:=]", text)]
    if not field or len(texts) != 1:
        return None
    own = field.removeprefix(texts[0].partition(":")[0]).removeprefix(".")
    return f"--{part} {quoted(texts[0])[1:-1]}{f': {own}' if own else ''}"


def _value(value: Any, texts: list[str]) -> Any:
    """The value as it was typed, where it is the one that was."""
    return next((text for text in texts if _same(text, value)), value)


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
        if "--" in words and word in words[words.index("--") :]:
            return str(InvalidValue("arguments", f"-- {word}", "options without a '--' before them"))
        return str(InvalidValue("option", word, _nearest(word, _options(error), f"'{command} --help' lists them")))
    if isinstance(error, UnknownCommandError):
        known = [name for name in error.app if not name.startswith("-")] if error.app else commands
        word = next((word for word in words if word not in (error.command_chain or ())), "")
        return str(InvalidValue("command", word, listed(known)))
    if isinstance(error, UnusedCliTokensError):
        extra = " ".join(error.unused_tokens or ())
        return str(InvalidValue("arguments", extra, f"options only ('{command} --help' lists them)"))
    field, value = _argument(error, words)
    if isinstance(error, MissingArgumentError):
        return str(InvalidValue(field, "", f"{_described(error)} ('{command} --help' says more)"))
    if isinstance(error, RepeatArgumentError) and not value:  # switches
        switch = field.replace("--no-", "--", 1)
        names = (switch, switch.replace("--", "--no-", 1))
        both = " ".join(word for word in words if word.partition("=")[0] in names)
        return str(InvalidValue("option", both, "one of them"))
    if isinstance(error, RepeatArgumentError):
        return str(InvalidValue(field, value, "one value; it was given twice"))
    allowed = NUMBERS.get(getattr(error, "target_type", None)) or str(error).rstrip(".")
    return str(InvalidValue(field, value, f"{allowed} ('{command} --help' says what is)"))


def _argument(error: CycloptsError, words: list[str]) -> tuple[str, str]:
    """The flag as typed, or an argument's name in lower case; and its value."""
    token = getattr(error, "token", None) if isinstance(error, CoercionError | RepeatArgumentError) else None
    if token is not None and token.keyword:
        return str(token.keyword), str(token.value)
    name = error.argument.name if error.argument is not None else "arguments"
    name = [name, *_named(error, words)][-1]
    return name if name.startswith("--") else name.lower(), str(token.value) if token is not None else ""


def _named(error: CycloptsError, words: list[str]) -> list[str]:
    """The names by which an argument was given."""
    names = error.argument.names if error.argument is not None else ()
    return [word.partition("=")[0] for word in words if word.partition("=")[0] in names]


def _options(error: CycloptsError) -> list[str]:
    return [name for argument in _arguments(error) for name in argument.names]


def _arguments(error: CycloptsError) -> Any:
    return error.app.assemble_argument_collection(parse_docstring=True) if error.app else []


def _described(error: CycloptsError) -> str:
    """What a missing argument is, by the first sentence of its help."""
    own = error.argument.name if error.argument is not None else None
    texts = (argument.parameter.help for argument in _arguments(error) if argument.name == own)
    sentence, *_ = re.split(r"[.;:](?=\s|$)", next(texts, None) or "")
    return f"{sentence[:1].lower()}{sentence[1:]}" or "a value"


def _nearest(word: str, known: list[str], otherwise: str) -> str:
    close = nearest(re.sub("=.*", "", word), known)
    return f"{close} ({otherwise})" if close else otherwise
