"""Every annotation of the package means something: a shape that lost its quotes would never be checked."""

import ast
import importlib
import inspect
import pkgutil
import typing

import pytest
import torch
from jaxtyping import TypeCheckError

import recombine
from recombine.factors import Factor, FactorGrid
from recombine.holdouts import Center, HoldoutSummary
from recombine.metrics.registry import Stage

MODULES = [
    info.name for info in pkgutil.walk_packages(recombine.__path__, "recombine.") if not info.name.endswith("__main__")
]


def imported(name):
    """A module of the package; kernels that need what is not installed are skipped."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if str(error.name).split(".")[0] == "triton":
            pytest.skip(str(error))
        raise


def type_checking_names(module):
    """What a module imports for type checkers only."""
    names = {"__name__": module.__name__, "__package__": module.__spec__.parent}
    for statement in ast.parse(inspect.getsource(module)).body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test).endswith("TYPE_CHECKING"):
            exec(compile(ast.Module(statement.body, []), module.__file__, "exec"), names)
    return names


def plain(member):
    """The function of a method, class method, static method or property."""
    if isinstance(member, property):
        return member.fget
    return getattr(member, "__func__", None) or getattr(member, "func", member)


def annotated(module):
    """Everything with annotations that a module defines: itself, its functions, classes and their methods."""
    yield module.__name__, module
    for name, thing in vars(module).items():
        if getattr(thing, "__module__", None) != module.__name__:
            continue
        if inspect.isclass(thing):
            own = vars(thing).get("__annotations__", {})  # not those of a foreign base
            yield name, type(name, (), {"__annotations__": dict(own)})
            for method, member in vars(thing).items():
                function = plain(member)
                if inspect.isfunction(function) and function.__module__ == module.__name__:
                    yield f"{name}.{method}", function
        elif inspect.isfunction(thing) or hasattr(thing, "cache_info"):
            yield name, thing


@pytest.mark.parametrize("name", MODULES)
def test_annotations_can_be_evaluated(name):
    module = imported(name)
    names = {**vars(module), **type_checking_names(module)}
    wrong = []
    for what, thing in annotated(module):
        try:
            typing.get_type_hints(thing, names, names, include_extras=True)
        except Exception as error:
            wrong.append(f"{what}: {error}")
    assert not wrong


def test_shapes_are_checked_in_signatures_that_end_in_dots():
    grid = FactorGrid((Factor("x", 0, 4, 5), Factor("y", 0, 4, 5)))
    mask = Center(low=1, high=3).mask(grid)
    with pytest.raises(TypeCheckError):
        HoldoutSummary.of(mask.float(), grid)
    with pytest.raises(TypeCheckError):
        Stage("output", torch.zeros(24, 2), grid.points, grid, mask.flatten())  # one point is missing
