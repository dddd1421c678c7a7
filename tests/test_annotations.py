"""Every annotation of the package means something: what it names exists, and a shape is a text that jaxtyping reads."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from typing import get_type_hints

import pytest

import recombine

MODULES = sorted(part.name for part in pkgutil.walk_packages(recombine.__path__, "recombine."))
LEFT_OUT = {"recombine.__main__"}
"""What runs when it is imported."""


def only_for_checkers(module):
    """What a module imports under TYPE_CHECKING."""
    names = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            exec(compile(ast.Module(node.body, []), module.__name__, "exec"), names)
    return names


def annotated(module):
    """Functions and classes that a module defines, and the methods of its classes."""
    for part in vars(module).values():
        if getattr(part, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(part):
            yield inspect.unwrap(part)
        elif inspect.isclass(part):
            yield part
            for member in vars(part).values():
                for wrapped in ("__func__", "fget", "func"):  # of class methods, properties, cached properties
                    member = getattr(member, wrapped, None) or member
                if inspect.isfunction(member) and member.__module__ == module.__name__:
                    yield inspect.unwrap(member)


@pytest.mark.parametrize("name", [name for name in MODULES if name not in LEFT_OUT])
def test_every_annotation_can_be_evaluated(name):
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("recombine"):
            raise
        pytest.skip(f"{error.name} is not installed")
    names = vars(module) | only_for_checkers(module)
    for part in annotated(module):
        own = vars(part).get("__annotations__", {}) if inspect.isclass(part) else part.__annotations__
        holder = type(part.__name__, (), {"__annotations__": own})  # a class, where ClassVar is allowed, without bases
        get_type_hints(holder, globalns=names, localns=names, include_extras=True)
