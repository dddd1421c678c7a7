"""Examples in the docstrings of the metrics and of the theory."""

import doctest
import importlib
import pkgutil

import pytest

import recombine.metrics
import recombine.theory

MODULES = [
    info.name
    for package in (recombine.metrics, recombine.theory)
    for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    outcome = doctest.testmod(importlib.import_module(name))
    assert not outcome.failed
