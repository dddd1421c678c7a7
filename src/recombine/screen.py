"""Standard output and standard error, whatever they are: no text of a user's is markup, no failure is a traceback.

Output goes to a terminal of any size, a file, a full disk, a reader that leaves early, or nowhere. A command writes
with `say`, `paragraph` and `console`; `main` hears of it by `OutputLost` when nothing more can be written.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import re
import sys
import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NoReturn

from rich.console import Console
from rich.text import Text

PLAIN_WIDTH = 160
"""Columns where the output is not a terminal and COLUMNS is not set."""
USUAL_WIDTH = 80
"""Columns of a terminal that does not know its size."""
NARROWEST, WIDEST = 20, 500
SIZE = re.compile(r"0*[1-9][0-9]{0,5}")
"""What COLUMNS and LINES may be."""
REPLACED = "recombine-replaced"
"""Name of the handler for characters that an output's encoding does not have."""
SUBSTITUTES = {
    "±": "+-",
    "–": "-",
    "−": "-",
    "…": "...",
    "×": "x",
    "·": "-",
    "∞": "inf",
    "σ": "sigma",
    "→": "->",
    "─": "-",
}
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters that move a terminal's cursor, change its colours or ring."""


class OutputLost(Exception):
    """Standard output takes nothing more."""

    def __init__(self, number: int | None) -> None:
        self.reader_left = number == errno.EPIPE
        super().__init__(os.strerror(number) if number else "it is closed")


class Screen(Console):
    """A console for text that may hold anything."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Write, or raise `OutputLost`."""
        try:
            super().print(*objects, **options)
        except OSError as error:
            raise OutputLost(error.errno) from None

    def write_lines(self, lines: Iterable[str | Text]) -> None:
        """Write lines as they are, none of them wrapped."""
        lines = list(lines)
        if any(isinstance(line, Text) for line in lines):
            self.print(Text("\n").join(Text(line) if isinstance(line, str) else line for line in lines), soft_wrap=True)
            return
        try:
            self.file.write("".join(f"{line}\n" for line in lines))
            self.file.flush()
        except OSError as error:
            raise OutputLost(error.errno) from None

    def on_broken_pipe(self) -> NoReturn:
        """Say so, where rich would exit with the code that means damage."""
        raise OutputLost(errno.EPIPE)


def console(*, stderr: bool = False) -> Screen:
    """Standard output, or standard error, as wide as its terminal."""
    width = width_of(sys.stderr if stderr else sys.stdout)
    return Screen(stderr=stderr, width=width, markup=False, highlight=False, emoji=False)


def width_of(stream: Any) -> int:
    """COLUMNS if that is a sensible number, else the terminal's width, else enough for a table."""
    width = PLAIN_WIDTH
    if SIZE.fullmatch(columns := os.environ.get("COLUMNS", "")):
        width = int(columns)
    elif is_terminal(stream):
        with suppress(OSError, ValueError):
            width = os.get_terminal_size(stream.fileno()).columns or USUAL_WIDTH
    return min(max(width, NARROWEST), WIDEST)


def is_terminal(stream: Any) -> bool:
    """Whether somebody watches."""
    try:
        return stream.isatty()
    except (OSError, ValueError):
        return False


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
    """Give the three standard descriptors a meaning where they have none, and every character a form.

    The next file that is opened would get a closed one's number, and what libraries print would end up in that file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # standard output cannot be written to, as before; messages on standard error are dropped
            mode = os.O_WRONLY if number == 2 else os.O_RDONLY
            os.set_inheritable(os.open(os.devnull, mode), True)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
    for variable in ("COLUMNS", "LINES"):  # which rich reads as well
        if not SIZE.fullmatch(os.environ.get(variable, "")):
            os.environ.pop(variable, None)
    codecs.register_error(REPLACED, _replaced)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=REPLACED)


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """Something like the characters that cannot be encoded."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_plain(letter) for letter in error.object[error.start : error.end]), error.end


def _plain(letter: str) -> str:
    if "\udc80" <= letter <= "\udcff":  # a byte of a file's name that is no text
        return f"\\x{ord(letter) - 0xDC00:02x}"
    if letter in SUBSTITUTES:
        return SUBSTITUTES[letter]
    if letter.isalpha():  # of a user's path, perhaps: another letter would name another file
        return letter.encode("ascii", "backslashreplace").decode()
    return unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode() or "?"


def write_error(line: str) -> None:
    """Write a line to standard error, if that can be written."""
    try:
        print(visible(line), file=sys.stderr, flush=True)
    except OSError:
        silence(sys.stderr)


def flush_output() -> None:
    """Make sure that all output was written."""
    try:
        sys.stdout.flush()
    except OSError as error:
        raise OutputLost(error.errno) from None


def silence(stream: Any) -> None:
    """Send what is still in a stream's buffer nowhere, so that the interpreter does not fail over it when it ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
