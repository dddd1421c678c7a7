"""Stored specs in the words of the command line.

Everything comes from a spec's JSON, so that nothing here imports torch. A part prints as `name:field=value`, which is
what its flag takes; fields that are null are left out, as a part's are unless they are given.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from recombine.errors import typed

LONGEST_LIST = 8
"""Points or numbers that a cell lists; of more it says how many there are."""
LONGEST_COMMAND = 4000


def field_text(value: Any, *, whole: bool = False) -> str:
    """A value as its flag takes it; a long list only as its length, unless it is to be whole."""
    if isinstance(value, Mapping):
        fields = {name: field for name, field in value.items() if name != "kind" and field is not None}
        texts = {name: field_text(field, whole=whole) for name, field in fields.items()}
        inner = [f"{name}={f'({text})' if ':' in text else text}" for name, text in texts.items()]
        return ":".join([value["kind"], *inner])
    if isinstance(value, list) and len(value) > LONGEST_LIST and not whole:
        return f"{len(value)} {'points' if isinstance(value[0], list) else 'values'}"
    return typed(value)


def train_command(spec: Mapping[str, Any]) -> str | None:
    """The command that trains a stored spec; none where it would be too long to type."""
    task = {name: value for name, value in spec["task"].items() if name != "kind"}
    rest = {
        name: value for name, value in spec.items() if name not in ("task", "decoder", "recipe", "revision", "seed")
    }
    fields = {"task": spec["task"]["kind"], **task, "decoder": spec["decoder"], **spec["recipe"], **rest}
    words = ["recombine", "train"]
    for name, value in fields.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        elif value is not None:
            words += [flag, field_text(value, whole=True)]
    command = shlex.join([*words, "--seeds", f"{spec['seed']}..{spec['seed']}"])
    return command if len(command) <= LONGEST_COMMAND else None
