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
from typing import Any

from recombine.records import Frozen, Variant

DIGITS = 16
"""Number of hexadecimal digits of a digest."""


def own_parts(record: Frozen) -> dict[str, str]:
    """Return the source digests of all parts that are defined outside the package, by class name and kind."""
    package = __name__.partition(".")[0]
    outside = {type(part) for part in _parts(record) if type(part).__module__.partition(".")[0] != package}
    return {f"{cls.__name__} ({cls.kind_name()})": _source_digest(cls) for cls in outside}


def changed_parts(record: Frozen, provenance: Mapping[str, object]) -> list[str]:
    """Return the parts whose source differs from the one recorded in a run's provenance."""
    recorded = provenance.get("own_parts")
    if not isinstance(recorded, dict):
        return []
    return sorted(name for name, digest in own_parts(record).items() if recorded.get(name, digest) != digest)


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
