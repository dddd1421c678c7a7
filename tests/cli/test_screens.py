"""Screens as they are kept in tests/golden/screens."""

import re

import pytest

from tests.golden import MADE_HERE
from tests.golden.screens import COMMANDS, SIZES, golden, screens

NAMES = [f"{command}_{size}" for command in COMMANDS for size in SIZES]


@pytest.fixture(scope="module")
def written():
    """All screens, written now."""
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("COLUMNS", "LINES", "RECOMBINE_STORE"):
            patch.delenv(variable, raising=False)
        yield dict(screens())


@pytest.mark.parametrize("name", NAMES)
def test_a_screen_is_as_it_was(name, written):
    own, expected = written[name], golden(name).read_text()
    if not MADE_HERE:
        own, expected = (re.sub(r"\d", "0", text) for text in (own, expected))
    assert own == expected, "look at it, and run `python -m tests.golden.screens`"


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_wider_than_its_terminal(name):
    shape = SIZES[name.rpartition("_")[2]]
    lines = golden(name).read_text().splitlines()
    assert not shape or max(len(line) for line in lines) <= shape[0]
