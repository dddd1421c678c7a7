"""Commands, as a user types them, in this process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pytest

from recombine.cli import main


class Outcome(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def run(*words: object) -> int:
    """The exit code of a command, word by word."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code


def captured(words: str | Iterable[object], capsys: pytest.CaptureFixture[str]) -> Outcome:
    """Exit code, standard output and standard error of a command, given as a line or as words."""
    return Outcome(run(*(words.split() if isinstance(words, str) else words)), *capsys.readouterr())
