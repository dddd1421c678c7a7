"""Examples in the docstrings of readers and of the array task."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["recombine.data.columns", "recombine.tasks.array"])
def test_examples(name):
    outcome = doctest.testmod(importlib.import_module(name))
    assert outcome.attempted
    assert not outcome.failed
