"""Parts defined outside the package: their source is recorded with every run, to notice changes.

The key of a run contains the `version` of its parts. If the code of a part changes but its version does not, the store
would return scores of the old code, so a digest of the source is kept with the run, and a difference is reported.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from recombine.records import Frozen, Variant

DIGITS = 16
"""Number of hexadecimal digits of a digest."""


def own_parts(record: Frozen) -> dict[str, str]:
    """Return the source digests of all parts that are defined outside the package, by class name and kind."""
    return {_name(cls): _source_digest(cls) for cls in _own_classes(record)}


def changed_sources(record: Frozen, provenance: Mapping[str, object]) -> list[str]:
    """Return the files whose code differs from the one recorded in a run's provenance, or parts without a file."""
    recorded = provenance.get("own_parts")
    if not isinstance(recorded, dict):
        return []
    return sorted({
        Path(file).name if (file := getattr(sys.modules.get(cls.__module__), "__file__", None)) else _name(cls)
        for cls in _own_classes(record)
        if recorded.get(_name(cls), digest := _source_digest(cls)) != digest
    })  # fmt: skip


def _own_classes(record: Frozen) -> set[type[Variant]]:
    package = __name__.partition(".")[0]
    return {type(part) for part in _parts(record) if type(part).__module__.partition(".")[0] != package}


def _name(cls: type[Variant]) -> str:
    return f"{cls.__name__} ({cls.kind_name()})"


def _parts(record: Frozen) -> Iterator[Variant]:
    if isinstance(record, Variant):
        yield record
    for name in type(record).model_fields:
        value = getattr(record, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Frozen):
                yield from _parts(part)


@cache
def _source_digest(cls: type) -> str:
    """Return a digest of the file that defines a class, which includes what the class uses, without comments.

    Of a class typed at a prompt, only the methods are known.
    """
    module: Any = sys.modules.get(cls.__module__)
    parts: list[Any] = [value for value in vars(cls).values() if inspect.isfunction(value)]
    try:
        sources = [inspect.getsource(part) for part in ([module] if hasattr(module, "__file__") else parts)]
        text = "".join(ast.dump(ast.parse(inspect.cleandoc("\n" + source))) for source in sources)
    except (OSError, TypeError, SyntaxError):
        return ""
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
