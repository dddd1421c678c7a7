"""Examples in the docstrings of the theory."""

import doctest
import importlib
import pkgutil

import pytest

import recombine.theory

MODULES = [info.name for info in pkgutil.iter_modules(recombine.theory.__path__, "recombine.theory.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    outcome = doctest.testmod(importlib.import_module(name))
    assert not outcome.failed
