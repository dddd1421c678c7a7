"""Adapts docstrings for the API reference.

Fields of records are listed among the Parameters, not again as attributes, and module constants are left out. Bars mean
absolute values, not reStructuredText substitutions. A colon in the description of an attribute does not end a type.
"""

from __future__ import annotations

import dataclasses
import re
from functools import cache
from typing import Any

import recombine
import recombine.metrics
from recombine.records import Frozen

QUOTED = re.compile(r"(`[^`]*`)")


@cache
def field_names() -> frozenset[str]:
    """Return the field names of all public records and dataclasses."""
    names: set[str] = {"kind"}
    for thing in (*(getattr(recombine, name) for name in recombine.__all__), *vars(recombine.metrics).values()):
        names |= {*getattr(thing, "model_fields", ()), *getattr(thing, "_fields", ())}
        names |= {own.name for own in dataclasses.fields(thing)} if dataclasses.is_dataclass(thing) else set()
    return frozenset(names)


def _skip(app: Any, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    if name.startswith("model_") or (what == "module" and not callable(thing)):
        return True
    is_method = callable(thing) or isinstance(thing, property | classmethod | staticmethod) or hasattr(thing, "func")
    return True if name in field_names() and not is_method else None


def _signature(
    app: Any, what: str, name: str, thing: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, None]:
    """Show a record's fields by name only; types and defaults are among the Parameters."""
    if not (isinstance(thing, type) and issubclass(thing, Frozen)):
        return signature and signature.replace("<function <lambda>>", "…"), None
    fields = [field for field in thing.model_fields if field != "kind"]
    shown = fields if len(fields) < 16 else [*fields[:3], "…"]
    return f"({', '.join(['*', *shown]) if fields else ''})", None


def _as_written(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    if what in {"attribute", "property", "data"}:
        lines.insert(0, "")  # napoleon looks for a type in the first line
    for at, line in enumerate(lines):
        if "|" in line and not line.lstrip().startswith((">>>", "...")):
            parts = QUOTED.split(line)
            parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
            lines[at] = "".join(parts)


def setup(app: Any) -> dict[str, bool]:
    """Register the hooks with Sphinx."""
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-process-docstring", _as_written, priority=400)  # before napoleon reads the sections
    return {"parallel_read_safe": True}
