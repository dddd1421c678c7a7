"""The command line. Commands are imported when they are used, so that `recombine --help` answers at once."""

from __future__ import annotations

import difflib
import signal
import sys
from typing import Any, NoReturn

from cyclopts import App, CycloptsError
from cyclopts.exceptions import (
    CoercionError,
    MissingArgumentError,
    RepeatArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from recombine import __version__
from recombine.errors import Interrupted, InvalidValue, RecombineError, listed

MISUSED, STOPPED = 2, 130
"""Exit codes: a mistake of the user's, and an interruption."""

app = App(
    name="recombine",
    help="Will a decoder compose factors it has never seen together, where does factorization break, what fixes it?",
    version=__version__,
    help_format="plaintext",
)
app.command("recombine.cli.train:train", name="train", help="Train ensembles; what is trained already is served.")
app.command("recombine.cli.runs:app", name="runs", help="List, show, verify, prune and export the runs of a store.")
app.command("recombine.cli.diagnose:diagnose", name="diagnose", help="Measure a module of your own.")
app.command("recombine.cli.reproduce:reproduce", name="reproduce", help="Re-run figures and claims; write a report.")
app.command("recombine.cli.reproduce:figure", name="figure", help="Draw a figure again from stored results.")
app.command("recombine.cli.reproduce:claims", name="claims", help="Judge the claims again from stored results.")
app.command("recombine.cli.reproduce:report", name="report", help="Write a folder's report again.")
app.command(
    "recombine.cli.verify:verify", name="verify", help="Compare the files of results or a store with their digests."
)
app.command("recombine.cli.bench:bench", name="bench", help="Time the engine beside a plain loop.")


def main(words: list[str] | None = None) -> NoReturn:
    """Run a command and exit: 0 done, 1 something was found wrong, 2 a mistake, 130 interrupted."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    words = sys.argv[1:] if words is None else words
    try:
        code = app(words, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        _fail(_one_line(error, words), MISUSED)
    except Interrupted as error:
        _fail(str(error), STOPPED)
    except RecombineError as error:
        _fail(str(error), MISUSED)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "alloc" not in str(error) and "out of memory" not in str(error):
            raise
        _fail("memory: not enough for this spec; allowed: a smaller size, width, batch or number of members", MISUSED)
    except KeyboardInterrupt:
        _fail("interrupted; the same command goes on from here", STOPPED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> NoReturn:
    print("recombine:", " ".join(message.split()), file=sys.stderr)
    sys.exit(code)


def _one_line(error: CycloptsError, words: list[str]) -> str:
    """A parser's complaint in the form of all others: field, value, what is allowed."""
    command = " ".join(["recombine", *(error.command_chain or ())])
    if isinstance(error, UnknownOptionError):
        word = str(error.token.keyword or error.token.value)
        return str(InvalidValue("option", word, _nearest(word, _options(error), f"'{command} --help' lists them")))
    if isinstance(error, UnknownCommandError):
        known = [name for name in (error.app or app) if not name.startswith("-")]
        word = next((word for word in words if word not in (error.command_chain or ())), "")
        return str(InvalidValue("command", word, listed(known)))
    field = error.argument.name.lstrip("-") if error.argument is not None else "arguments"
    if isinstance(error, MissingArgumentError):
        return str(InvalidValue(field.lower(), None, f"a value ('{command} --help' says which)"))
    if isinstance(error, RepeatArgumentError):
        word = str(error.token.keyword).lstrip("-") if error.token else field
        return str(InvalidValue(word, error.token.value if error.token else None, "one value; it was given twice"))
    if isinstance(error, UnusedCliTokensError):
        return str(
            InvalidValue(
                "arguments", " ".join(error.unused_tokens or ()), f"options only ('{command} --help' lists them)"
            )
        )
    value = error.token.value if isinstance(error, CoercionError) and error.token else None
    return str(InvalidValue(field, value, f"{str(error).rstrip('.')} ('{command} --help' says what is)"))


def _options(error: CycloptsError) -> list[str]:
    collection: Any = error.app.assemble_argument_collection() if error.app else []
    return [name for argument in collection for name in argument.names]


def _nearest(word: str, known: list[str], otherwise: str) -> str:
    close = difflib.get_close_matches(word, known, n=3)
    return f"{listed(close)} ({otherwise})" if close else otherwise
