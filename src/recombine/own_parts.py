"""Parts from outside the package: which of them a spec uses, and whether their code has changed since a run.

The key of a run holds the `version` of every part. Code that changed under the same version would be served the scores
of its predecessor: runs keep a digest of the source, and a mismatch is a warning.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections.abc import Iterator, Mapping

from recombine.records import Frozen, Variant

DIGITS = 16
"""Hexadecimal digits of a digest."""


def own_parts(record: Frozen) -> dict[str, str]:
    """The source digest of every part of a record that is defined outside the package, by class and kind."""
    package = __name__.partition(".")[0]
    classes = {type(part) for part in _parts(record)}
    outside = {cls for cls in classes if cls.__module__.partition(".")[0] != package}
    return {f"{cls.__name__} ({cls.kind_name()})": _source_digest(cls) for cls in outside}


def changed_parts(record: Frozen, digests: Mapping[str, str]) -> list[str]:
    """The parts whose source differs from what a run noted."""
    now = own_parts(record)
    return sorted(name for name, digest in digests.items() if now.get(name, digest) != digest)


def _parts(record: Frozen) -> Iterator[Variant]:
    if isinstance(record, Variant):
        yield record
    for name in type(record).model_fields:
        value = getattr(record, name)
        for own in value if isinstance(value, tuple) else (value,):
            if isinstance(own, Frozen):
                yield from _parts(own)


def _source_digest(cls: type) -> str:
    """Of the whole file, which has the modules and functions that the class uses; comments and spacing do not count."""
    module = sys.modules.get(cls.__module__)
    try:
        source = inspect.getsource(module if module is not None and hasattr(module, "__file__") else cls)
        text = ast.dump(ast.parse(inspect.cleandoc(source)))
    except (OSError, TypeError, SyntaxError):
        return ""  # typed at a prompt
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
