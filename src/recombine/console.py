"""Output through a rich console, without markup, and with control characters escaped."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Timer
from typing import Any, NoReturn

from rich.console import Console

PLAIN_WIDTH = 160
"""Width in characters if the output is not a terminal and COLUMNS is not set."""
PATIENCE = 2.0
"""Seconds after which the progress of a measurement is shown."""
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class ReaderLeft(Exception):
    """Raised when the reader of standard output has gone; not an `OSError`, which writing a file may also raise."""


class Screen(Console):
    """A console that raises `ReaderLeft` when its reader has gone."""

    def write_lines(self, lines: Iterable[str]) -> None:
        """Write lines without wrapping."""
        try:  # not with rich, which takes seconds for a hundred thousand lines
            self.file.write("".join(f"{line}\n" for line in lines))
            self.file.flush()
        except BrokenPipeError:
            self.on_broken_pipe()

    def on_broken_pipe(self) -> NoReturn:
        """Raise `ReaderLeft` instead of exiting with code 1, as rich does."""
        raise ReaderLeft


def console(*, stderr: bool = False) -> Screen:
    """Return a console for standard output or standard error, as wide as its terminal."""
    stream, width = sys.stderr if stderr else sys.stdout, None
    if "COLUMNS" not in os.environ:  # rich would measure any standard stream that is a terminal
        width = (os.get_terminal_size(stream.fileno()).columns or None) if is_terminal(stream) else PLAIN_WIDTH
    return Screen(stderr=stderr, width=width, markup=False, highlight=False, emoji=False)


def is_terminal(stream: Any) -> bool:
    """Return whether a stream is an open terminal."""
    return stream is not None and not stream.closed and stream.isatty()


def say(line: str) -> None:
    """Print a line without wrapping it, so that paths can be copied from a terminal."""
    console().print(visible(line), soft_wrap=True)


def paragraph(text: str) -> None:
    """Print a paragraph, wrapped between words in a terminal and on one line elsewhere."""
    console().print(visible(text), soft_wrap=not is_terminal(sys.stdout))


def visible(text: str) -> str:
    """Return the text with control characters escaped."""
    return text if text.isprintable() else CONTROLS.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def aligned(columns: Mapping[str, Sequence[str]], left: Collection[str] = ()) -> list[str]:
    """Return the lines of a plain table, given the cells below each heading; columns in `left` are aligned there.

    >>> aligned({"name": ["mlp", "coordinate"], "score": ["0.4", "1"]}, left=["name"])
    ['name        score', 'mlp           0.4', 'coordinate      1']
    """
    padded = []
    for heading, cells in columns.items():
        width = max(map(len, (heading, *cells)))
        padded.append([cell.ljust(width) if heading in left else cell.rjust(width) for cell in (heading, *cells)])
    return ["  ".join(row).rstrip() for row in zip(*padded, strict=True)]


def number(value: float, form: str = ".2f") -> str:
    """Return a number with a minus sign: `−0.50`."""
    return f"{value:{form}}".replace("-", "−")


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 run`, `2 runs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


@contextmanager
def late_bar(total: int, *, shown: bool = True) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with the name of each step before it is done.

    On a terminal or in a notebook, a bar appears if the steps take longer than `PATIENCE` seconds.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    screen = console(stderr=True)
    shown = shown and (screen.is_terminal or screen.is_jupyter)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=screen, disable=not shown, transient=True)
    task = bar.add_task("", total=total)
    timer = Timer(PATIENCE, bar.start)  # in a thread, since a single step may take minutes
    timer.daemon = True
    begun = 0

    def begin(step: str) -> None:
        nonlocal begun
        bar.update(task, completed=begun, description=visible(step))
        begun += 1

    if shown:
        timer.start()
    try:
        yield begin
    finally:
        timer.cancel()
        if shown:
            timer.join()
            bar.stop()


def write_error(line: str) -> None:
    """Print a line to standard error, if possible."""
    with suppress(OSError):
        print(visible(line), file=sys.stderr, flush=True)


def silence(stream: Any) -> None:
    """Discard a stream's buffer, so that the interpreter does not fail when flushing it on exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
