"""Digests of criteria, so that one that was changed after its data were collected shows.

The digest of a statement covers the claim's name, its criterion, and the code that computes its samples: the functions
themselves and what they call in this package's papers and tables, constants included. Comments, docstrings, names of
files and the layout of the text are not covered, so that editing those changes nothing.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import textwrap
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

LENGTH = 16
"""Hexadecimal digits of a digest."""
COVERED = ("recombine.papers.", "recombine.reproduction.")
"""Modules whose functions a digest follows; metrics have declared versions, on which Datasets depend."""


def digest(*parts: Any) -> str:
    """Of plain data and functions."""
    text = json.dumps([_plain(part) for part in parts], sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def _plain(part: Any) -> Any:
    return code_of(part) if isinstance(part, FunctionType) else part


def code_of(function: Callable[..., Any]) -> list[Any]:
    """A function's code and that of what it calls, as nested lists without comments and docstrings."""
    seen: dict[str, Any] = {}
    _follow(function, seen)
    return [seen[name] for name in sorted(seen)]


def _follow(function: Any, seen: dict[str, Any]) -> None:
    name = f"{function.__module__}.{function.__qualname__}"
    if name in seen:
        return
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)).strip().rstrip(","))
    seen[name] = _structure(tree)
    for used, value in _used(function):
        _include(used, value, seen)


def _include(name: str, value: Any, seen: dict[str, Any]) -> None:
    """What a function uses: code of this package is followed, plain constants are taken as they are."""
    if isinstance(value, FunctionType):
        if f"{value.__module__}.".startswith(COVERED):
            _follow(value, seen)
    elif isinstance(value, str | int | float | tuple | list | dict | frozenset):
        seen[f"{name}={value!r}"] = repr(value)


def _used(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Globals and closed-over values that a function names, in inner functions too."""
    closed = inspect.getclosurevars(function)
    yield from closed.nonlocals.items()
    names = set(_names(function.__code__))
    for name in sorted(names & set(function.__globals__)):
        value = function.__globals__[name]
        if not isinstance(value, ModuleType):
            yield name, value


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _structure(node: Any) -> Any:
    """A syntax tree as nested lists, the same for every version of Python: what is empty is left out."""
    if isinstance(node, ast.AST):
        fields = {name: value for name, value in ast.iter_fields(node) if value not in (None, [])}
        if isinstance(node, ast.FunctionDef | ast.Module | ast.ClassDef):
            fields["body"] = [part for part in node.body if not _is_text(part)]
        for hidden in ("kind", "type_comment", "type_ignores", "ctx", "returns", "annotation"):
            fields.pop(hidden, None)
        return [type(node).__name__, {name: _structure(value) for name, value in sorted(fields.items())}]
    if isinstance(node, list):
        return [_structure(part) for part in node]
    return node if isinstance(node, str | int | float | bool) else repr(node)


def _is_text(node: ast.AST) -> bool:
    """A docstring, or a string that stands alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
