"""Commands, as a user types them, in this process or in a child of it."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

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


@dataclass
class Child:
    """A process that runs a command."""

    number: int
    files: tuple[IO[bytes], IO[bytes]]
    """Its standard output and standard error."""

    def wait(self) -> Outcome:
        """How it ended."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.number, 0)[1])
        return Outcome(code, *(os.pread(file.fileno(), 1 << 20, 0).decode() for file in self.files))


def forked(words: Iterable[object], before: Callable[[], Any] = lambda: None) -> Child:
    """A command in a fork of this process, where nothing has to be imported again; `before` is called there first."""
    files = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115  closed with the last reference
    number = os.fork()
    if number:
        return Child(number, files)
    code = 70
    try:
        for descriptor, file in enumerate(files, 1):
            os.dup2(file.fileno(), descriptor)
        sys.stdout, sys.stderr = (os.fdopen(descriptor, "w") for descriptor in (1, 2))
        before()
        main([str(word) for word in words])
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
