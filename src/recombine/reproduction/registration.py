"""Digests of criteria, so that one that was changed after its data were collected shows.

The digest of a statement covers the claim's name, its criterion and the rules of judgement; the code that computes its
samples, which is the functions themselves and what they call in this package's papers and tables, classes and constants
included; and of the studies that it reads the declared versions and the numbers that their measuring code names.
Comments, docstrings, names of files and the layout of the text are not covered, so that editing those changes nothing.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import textwrap
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from types import CodeType, FunctionType, ModuleType
from typing import Any

LENGTH = 16
"""Hexadecimal digits of a digest."""
PAPERS = "recombine.papers."
COVERED = (PAPERS, "recombine.reproduction.")
"""Modules whose code a digest follows; metrics have declared versions, on which Datasets depend."""
Code = FunctionType | type
Numbers = dict[str, Any]


def digest(*parts: Any) -> str:
    """Of plain data, functions and classes."""
    text = json.dumps([_plain(part) for part in parts], sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def _plain(part: Any) -> Any:
    return code_of(part) if isinstance(part, Code) else part


def code_of(code: Code) -> list[Any]:
    """Digests of a function or class and of what it uses, without comments and docstrings, and constants."""
    found = Followed((*COVERED, _own_package(code)))
    found.follow(code)
    return [[found.code[name] for name in sorted(found.code)], sorted(map(list, found.constants))]


def numbers_of(function: Callable[..., Any]) -> Numbers:
    """The numbers that a function and what it calls in papers name, by name: thresholds, margins, sizes."""
    root = getattr(function, "__func__", function)
    found = Followed((PAPERS, _own_package(root)))
    found.follow(root)
    return dict(sorted(found.numbers.items()))


def _own_package(code: Any) -> str:
    """The package of code that is not part of this one, which is followed as papers are."""
    package = str(code.__module__).partition(".")[0]
    return f"{package}." if package != __name__.partition(".")[0] else PAPERS


class Followed:
    """Functions and classes that use one another, and constants that they name."""

    def __init__(self, covered: tuple[str, ...]) -> None:
        self.covered = covered
        self.code: dict[str, Any] = {}
        self.constants: set[tuple[str, str]] = set()
        self.numbers: Numbers = {}

    def follow(self, code: Any) -> None:
        """Take a function or class, once, and all that it uses."""
        name = f"{code.__module__}.{code.__qualname__}"
        if name in self.code:
            return
        self.code[name] = _text_digest(code)
        for base in code.__bases__ if isinstance(code, type) else ():
            self.include(base.__name__, base)
        for function in _functions(code):
            for used, value in (*_used(function), *_defaults(function)):
                self.include(used, value)

    def include(self, name: str, value: Any) -> None:
        """What a function uses: code of covered modules is followed, plain constants are taken as they are."""
        if inspect.ismethod(value):
            value = value.__self__ if isinstance(value.__self__, type) else type(value.__self__)
        if isinstance(value, Code):
            if f"{value.__module__}.".startswith(self.covered) and _is_written(value):
                self.follow(value)
        elif _is_plain(value):
            self.constants.add((name, repr(value)))
            if _is_numeric(value):
                self.numbers[name] = value


def _functions(code: Any) -> Iterator[FunctionType]:
    """A function itself, or those that a class defines in its text."""
    if isinstance(code, FunctionType):
        yield code
        return
    for member in vars(code).values():
        inner = member.func if isinstance(member, cached_property) else getattr(member, "fget", member)
        inner = getattr(inner, "__func__", inner)
        if isinstance(inner, FunctionType) and inner.__module__ == code.__module__ and _is_written(inner):
            yield inner


def _defaults(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Default values of parameters: a name there is not one that the code itself uses."""
    named = inspect.signature(function).parameters.items()
    for name, parameter in named:
        if parameter.default is not inspect.Parameter.empty:
            yield f"{function.__qualname__}({name})", parameter.default


@cache
def _text_digest(code: Code) -> str:
    """Of the text of a function or class, as far as it computes something."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(code)).strip().rstrip(","))
    return hashlib.sha256(json.dumps(_structure(tree)).encode()).hexdigest()


def _is_written(code: Code) -> bool:
    """Whether code has a text of its own; a dataclass makes some of its functions."""
    return isinstance(code, type) or not code.__code__.co_filename.startswith("<")


def _is_plain(value: Any) -> bool:
    """Whether a value is what it prints as, every time."""
    if isinstance(value, dict):
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float)


def _is_numeric(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, tuple) and bool(value) and all(map(_is_numeric, value)))


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
