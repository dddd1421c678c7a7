"""Every public name can be looked up: what it is, its Parameters, and an example that runs as it stands."""

import doctest
import inspect
import re

import pytest
from pydantic import Field

import recombine as rc
from recombine.records import Frozen

CALLABLE = [name for name in rc.__all__ if callable(getattr(rc, name))]


def docstring(name):
    """Its own docstring, not that of a base."""
    thing = getattr(rc, name)
    return inspect.cleandoc((vars(thing) if inspect.isclass(thing) else {"__doc__": thing.__doc__})["__doc__"] or "")


def arguments(thing):
    """Names that a call may give, without those of `*args` and `**kwargs`."""
    try:
        signature = inspect.signature(thing)
    except ValueError:  # exceptions that take a text
        return []
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [own.name for own in signature.parameters.values() if own.kind in named and own.name != "kind"]


def described(text):
    """Parameters by name, with what is said of each."""
    section = re.search(r"^Parameters\n-+\n((?:\S.*\n(?:    .*\n|\n(?=    ))*)*)", text + "\n", re.MULTILINE)
    entries = re.findall(r"^(\w+)(?: : .*)?\n((?:    .*\n?)+)", section[1] if section else "", re.MULTILINE)
    return {name: " ".join(words.split()) for name, words in entries}


@pytest.mark.parametrize("name", CALLABLE)
def test_a_docstring_of_its_own_begins_with_one_line(name):
    first, *rest = docstring(name).split("\n")
    assert first.endswith("."), first
    assert not rest or rest[0] == ""


@pytest.mark.parametrize("name", CALLABLE)
def test_every_argument_is_among_parameters(name):
    texts = described(docstring(name))
    assert [own for own in arguments(getattr(rc, name)) if not texts.get(own)] == []


@pytest.mark.parametrize("name", CALLABLE)
def test_the_example_runs_as_it_stands(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (test,) = doctest.DocTestFinder(recurse=False).find(getattr(rc, name), name, module=False, globs={})
    assert test.examples
    outcome = doctest.DocTestRunner().run(test)
    assert outcome.failed == 0
    assert [*tmp_path.iterdir()] == []


class Sample(Frozen):
    """A record.

    Parameters
    ----------
    first
        Said by hand.

    Examples
    --------
    >>> Sample(first=1).second
    2.0
    """

    first: int
    """Not shown, as it is said above."""
    second: float | None = Field(default=2.0, gt=0)
    """Said below
    the field."""


def test_a_records_fields_are_added_to_its_parameters():
    assert described(Sample.__doc__) == {"first": "Said by hand.", "second": "Said below the field."}
    assert "second : float or None, default 2.0\n" in Sample.__doc__
    assert Sample.__doc__.index("Parameters") < Sample.__doc__.index("second :") < Sample.__doc__.index("Examples")
    assert Sample.__doc__.count("Parameters\n") == 1
