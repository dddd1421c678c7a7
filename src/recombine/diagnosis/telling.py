"""How telling each number of a diagnosis has been, and from which networks that comes.

A file that the package comes with, written by `recombine report FOLDER --telling FILE` from the reference results'
study of markers. Without it, a diagnosis says nothing about it.

The file is JSON: `networks`, a sentence about the networks, and `numbers`: by name in a diagnosis, `auroc` with the
ends `low` and `high` of its 95 % interval, whether composing networks have the `higher` numbers, and the `position`
where that shows best; `fall` is true where that is not a place but the fall of the number from first hidden stage to
output. A score of the outputs that has cases is named with its case, as `superposition memorised`. `advice` is a list
of sentences on what has made networks compose.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

FILE = "telling.json"
KEY = "telling"
"""Attribute of a diagnosis that holds the record, as JSON."""
MEANING = (
    "AUROC: how well the number has told composing from failing networks of architectures that it was not chosen on "
    "(0.5: not at all, 1: always); ↑ composing networks have more of it, ↓ less; fall: of its fall along the stages"
)


def packaged() -> dict[str, Any]:
    """The record that the package comes with; empty without one."""
    text = resources.files("recombine.diagnosis").joinpath(FILE)
    return dict(json.loads(text.read_text(encoding="utf-8"))) if text.is_file() else {}


def of_numbers(record: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The part of a record that is about some numbers; empty where it is about none of them."""
    numbers = {name: record["numbers"][name] for name in names if name in record.get("numbers", {})}
    return {**record, "numbers": numbers} if numbers else {}


def attributes(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Attributes of a variable: its AUROC with interval, and which networks have the higher numbers and where."""
    score = record.get("numbers", {}).get(name)
    if score is None:
        return {}
    more = "composing networks" if score["higher"] else "failing networks"
    return {
        "auroc": score["auroc"], "auroc_low": score["low"], "auroc_high": score["high"],
        "auroc_meaning": f"{more} have the higher numbers, most plainly at: {score['position']}",
    }  # fmt: skip


def short(record: Mapping[str, Any], name: str) -> str:
    """An AUROC and its direction; empty for a number that has none.

    >>> short({"numbers": {"id_error": {"auroc": 0.616, "higher": False, "fall": False}}}, "id_error")
    '0.62 ↓'
    """
    score = record.get("numbers", {}).get(name)
    if score is None:
        return ""
    return f"{score['auroc']:.2f} {'fall ' if score['fall'] else ''}{'↑' if score['higher'] else '↓'}"


def sentences(record: Mapping[str, Any]) -> list[str]:
    """What an AUROC is, and from which networks these come."""
    return [MEANING, f"AUROCs come from {record['networks']}"] if record else []
