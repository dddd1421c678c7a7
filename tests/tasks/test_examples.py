"""Examples in the docstrings of tasks and columns of data."""

import doctest
import importlib
import pkgutil

import pytest

import recombine.tasks

MODULES = [info.name for info in pkgutil.iter_modules(recombine.tasks.__path__, "recombine.tasks.")]
MODULES += ["recombine.data.sources"]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    outcome = doctest.testmod(importlib.import_module(name))
    assert not outcome.failed
