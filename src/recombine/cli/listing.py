"""Stored specs in the words of the command line: fields by their flags' names, what differs, and which runs to list.

Everything comes from a spec's JSON, so that nothing here imports torch. A part prints as `name:field=value`, which is
what its flag takes; fields that are null are left out, as a part's are unless they are given.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recombine.cli.options import SHORT
from recombine.errors import InvalidValue, listed, typed

LONGEST_LIST = 8
"""Points or numbers that a cell lists; of more it says how many there are."""
LONGEST_COMMAND = 4000
MOST_CHOICES = 12
NOT_SET = "–"

Row = tuple[str, dict[str, Any]]
"""Key and summary of a run, as a store gives them."""


def flag_fields(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a run by the names of their flags; a part is a mapping with its `kind`."""
    spec = summary["spec"]
    task = {name: value for name, value in spec["task"].items() if name != "kind"}
    rest = {name: value for name, value in spec.items() if name not in ("task", "decoder", "recipe")}
    fields = {"status": summary["status"], "task": spec["task"]["kind"], **task}
    return {**fields, "decoder": spec["decoder"], **spec["recipe"], **rest}


def field_text(value: Any, *, whole: bool = False) -> str:
    """A value as its flag takes it; a long list only as its length, unless it is to be whole."""
    if isinstance(value, Mapping):
        fields = {name: field for name, field in value.items() if name != "kind" and field is not None}
        texts = {name: field_text(field, whole=whole) for name, field in fields.items()}
        return ":".join([value["kind"], *(f"{name}={_inner(text)}" for name, text in texts.items())])
    if isinstance(value, list) and len(value) > LONGEST_LIST and not whole:
        return f"{len(value)} {'points' if isinstance(value[0], list) else 'values'}"
    return typed(value)


def _inner(text: str) -> str:
    """The text of a part inside another part."""
    return f"({text})" if ":" in text else text


def difference(rows: Sequence[Row]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Columns of the fields in which runs differ, and the fields that are common to all."""
    runs = [flag_fields(summary) for _, summary in rows]
    columns: dict[str, list[Any]] = {}
    common: dict[str, Any] = {}
    for name in dict.fromkeys(name for run in runs for name in run):
        values = [run.get(name) for run in runs]
        if _alike(values):
            common[name] = values[0]
        elif parts := _of_one_kind(values):
            for field in dict.fromkeys(field for part in parts for field in part):
                if not _alike(cells := [part.get(field) for part in parts]):
                    columns[f"{name}.{field}"] = cells
        elif not _alike([run[name] for run in runs if name in run]) or not _by_task(name, runs):
            columns[name] = values  # one value wherever the field exists only repeats which task it is
    texts = {
        name: [NOT_SET if value is None else field_text(value) for value in values] for name, values in columns.items()
    }
    stated = {name: value for name, value in common.items() if value is not None and value is not False}
    return texts, {name: field_text(value) for name, value in stated.items()}


def _alike(values: list[Any]) -> bool:
    return all(value == values[0] for value in values)


def _by_task(name: str, runs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the task says which runs have a field, so that its presence is no news."""
    return len({run["task"] for run in runs}) == len({(run["task"], name in run) for run in runs})


def _of_one_kind(values: list[Any]) -> list[Mapping[str, Any]]:
    """The values if all are parts of one kind, else none."""
    parts = [value for value in values if isinstance(value, Mapping)]
    return parts if len(parts) == len(values) and len({part["kind"] for part in parts}) == 1 else []


def matching(rows: Sequence[Row], conditions: Iterable[str] | None) -> list[Row]:
    """The runs that meet conditions NAME=VALUE; of several for one name, any."""
    texts_by_name: dict[str, list[str]] = {}
    for condition in conditions or []:
        name, equals, value = condition.partition("=")
        if not equals:
            raise InvalidValue("where", condition, "NAME=VALUE, as decoder=mlp, size=8 or seed=0")
        texts_by_name.setdefault(_field_name(name), []).append(value)
    chosen = list(rows)
    for name, texts in texts_by_name.items():
        values = [_named(flag_fields(summary), name) for _, summary in rows]
        if rows and all(value is _ABSENT for value in values):
            raise InvalidValue("where", f"{name}={texts[0]}", f"NAME=VALUE with NAME one of {listed(_names(rows))}")
        for text in texts:
            if rows and not any(_meets(text, value) for value in values):
                values_here = list(dict.fromkeys(field_text(value) for value in values if value is not _ABSENT))
                more = ", …" if len(values_here) > MOST_CHOICES else ""
                raise InvalidValue(
                    "where", f"{name}={text}", f"what runs here have: {listed(values_here[:MOST_CHOICES])}{more}"
                )
        meets = {key for (key, _), value in zip(rows, values, strict=True) if any(_meets(t, value) for t in texts)}
        chosen = [row for row in chosen if row[0] in meets]
    return chosen


_ABSENT = object()


def _field_name(name: str) -> str:
    """A name as people write it (`--lr`, `recipe.lr`, `weight-decay`, `width`) as ours."""
    plain = name.strip().lstrip("-").replace("-", "_").removesuffix(".kind")
    for prefix in ("task.", "recipe."):
        plain = plain.removeprefix(prefix)
    return next((dotted for dotted, short in SHORT.items() if short == plain), plain)


def _named(fields: Mapping[str, Any], name: str) -> Any:
    part, dot, field = name.partition(".")
    value = fields.get(part, _ABSENT)
    if not dot:
        return value
    return value.get(field, _ABSENT) if isinstance(value, Mapping) else _ABSENT


def _names(rows: Sequence[Row]) -> list[str]:
    """All names that a condition can have."""
    names: dict[str, None] = {}
    for _, summary in rows:
        for name, value in flag_fields(summary).items():
            inner = [f"{name}.{field}" for field in value if field != "kind"] if isinstance(value, Mapping) else []
            names |= dict.fromkeys([name, *inner])
    return list(names)


def _meets(text: str, value: Any) -> bool:
    if value is _ABSENT:
        return False
    if isinstance(value, Mapping):
        kind, *pieces = text.split(":")
        return kind == value["kind"] and all(_piece_meets(piece, value) for piece in pieces)
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(text) == value
        except ValueError:
            return False
    return text.rstrip(",") == typed(value).rstrip(",")


def _piece_meets(piece: str, part: Mapping[str, Any]) -> bool:
    name, equals, text = piece.partition("=")
    if not equals:
        raise InvalidValue("where", piece, f"fields by name, as {field_text(part)}")
    return name in part and _meets(text, part[name])


def train_command(summary: Mapping[str, Any]) -> str | None:
    """The command that trains this very run; None where it would be too long to type."""
    words = ["recombine", "train"]
    for name, value in flag_fields(summary).items():
        flag = "--" + name.replace("_", "-")
        if name in ("status", "revision") or value is None:
            continue
        if name == "seed":
            words += ["--seeds", f"{value}..{value}"]
        elif isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            words += [flag, field_text(value, whole=True)]
    command = shlex.join(words)
    return command if len(command) <= LONGEST_COMMAND else None
