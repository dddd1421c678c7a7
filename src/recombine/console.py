"""Standard output by one rich console: no text of a user's is markup, and no control character reaches a terminal."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NoReturn

from rich.console import Console

PLAIN_WIDTH = 160
"""Columns where the output is not a terminal and COLUMNS is not set."""
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters that move a terminal's cursor, change its colours or ring."""


class ReaderLeft(Exception):
    """Nobody reads standard output any more, as in `recombine runs list | head`.

    Not an `OSError`, which whoever writes files at that moment would take for a failure of their own.
    """


class Screen(Console):
    """A console for text that may hold anything."""

    def write_lines(self, lines: Iterable[str]) -> None:
        """Write lines as they are, none of them wrapped."""
        try:  # not by rich, which takes seconds for a hundred thousand lines
            self.file.write("".join(f"{line}\n" for line in lines))
            self.file.flush()
        except BrokenPipeError:
            self.on_broken_pipe()

    def on_broken_pipe(self) -> NoReturn:
        """Say so, where rich would exit with the code that means damage."""
        raise ReaderLeft


def console(*, stderr: bool = False) -> Screen:
    """Standard output, or standard error, as wide as its terminal."""
    stream, width = sys.stderr if stderr else sys.stdout, None
    if "COLUMNS" not in os.environ:  # which rich reads; of a terminal it asks the first of three streams for its size
        width = (os.get_terminal_size(stream.fileno()).columns or None) if is_terminal(stream) else PLAIN_WIDTH
    return Screen(stderr=stderr, width=width, markup=False, highlight=False, emoji=False)


def is_terminal(stream: Any) -> bool:
    """Whether somebody watches."""
    return stream is not None and not stream.closed and stream.isatty()


def say(line: str) -> None:
    """Write a line as it is; a terminal may wrap it, so that a path in it can be copied."""
    console().print(visible(line), soft_wrap=True)


def paragraph(text: str) -> None:
    """Write prose: wrapped between words in a terminal, a single line elsewhere."""
    console().print(visible(text), soft_wrap=not is_terminal(sys.stdout))


def visible(text: str) -> str:
    """The text with control characters written out."""
    return text if text.isprintable() else CONTROLS.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def counted(count: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def prepare_streams() -> None:
    """Write out what an output's encoding cannot hold: names of files need not be text."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def write_error(line: str) -> None:
    """Write a line to standard error, if that can be written."""
    with suppress(OSError):
        print(visible(line), file=sys.stderr, flush=True)


def silence(stream: Any) -> None:
    """Send what is still in a stream's buffer nowhere, so that the interpreter does not fail over it when it ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
