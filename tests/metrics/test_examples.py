"""Examples in the docstrings of the metrics."""

import doctest
import importlib
import pkgutil

import pytest

import recombine.metrics

MODULES = [info.name for info in pkgutil.iter_modules(recombine.metrics.__path__, "recombine.metrics.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    outcome = doctest.testmod(importlib.import_module(name))
    assert not outcome.failed
