"""The command line. Commands are imported lazily, so that `recombine --help` is fast."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NoReturn

from cyclopts import App, CycloptsError, Parameter
from cyclopts.help import DefaultFormatter

from recombine.cli.imports import FLAG as IMPORT
from recombine.cli.imports import without_imports
from recombine.cli.options import HELP, HELP_ALL, MORE
from recombine.console import ReaderLeft, console, prepare_streams, say, silence, write_error
from recombine.errors import Interrupted, RecombineError, RunsFailed, from_pydantic
from recombine.version import __version__

WRONG, MISUSED, STOPPED, READER_LEFT = 1, 2, 130, 141
"""Exit codes: failed runs; a user's mistake or output that cannot be written; an interruption; a closed pipe."""
TRACEBACK = "--traceback"
LIBRARIES = ("torch", "numpy", "pydantic", "xarray", "safetensors", "triton", "distributed")
PREFIX = "RECOMBINE_"
"""First letters of this package's environment variables."""
EPILOGUE = (
    f"Every command takes {HELP_ALL}, which shows all flags, {IMPORT} MODULE, which imports your own parts "
    f"(docs/extending.md), and {TRACEBACK}, which shows where an error was raised."
)

app = App(
    name="recombine",
    help="Will a decoder compose factors it has never seen together, where does factorization break, what fixes it?",
    version_flags=(),  # a command of ours
    help_format="plaintext",
    help_epilogue=EPILOGUE,
    help_flags=HELP,
    default_parameter=Parameter(negative_iterable=()),
    suppress_keyboard_interrupt=False,  # cyclopts would exit without a message
)
COMMANDS = {
    "train": (
        "train",
        "Train ensembles and print a table; completed runs are loaded from the store.\n\n"
        "Flags of the task, decoder and recipe may be given several times: every combination is trained with every "
        "seed. A sweep of any size can be a file with the same names (docs/scale.md); flags override it.\n\n"
        "Example: recombine train --encoding bump --encoding rate --width 16 --depth 3 --seeds 4",
    ),
    "runs": ("app", "List, show, prune and export the runs of a store."),
    "diagnose": (
        "diagnose",
        "Measure any PyTorch module.\n\n"
        "Geometry, factorization, probes, tuning, kernels and superposition, stage by stage.\n\n"
        "Example: recombine diagnose mycode:decoder --grid x=0:27,y=0:27 --encoding bump --holdout center:6:22",
    ),
    "explore": (
        "explore",
        "Write an interactive page on which decoders run live as you move through their factors.\n\n"
        "The page is one HTML file. Modules that cannot run in a browser are shown by precomputed outputs.\n\n"
        "Example: recombine explore mycode:decoder --grid x=0:27,y=0:27 --encoding bump --holdout center:6:22 "
        "--out page.html",
    ),
    "compare": (
        "compare",
        "Train a decoder with each of several remedies, over many seeds, and compare them.\n\n"
        "Example: recombine compare --decoder cnn --remedy broadcast --remedy hessian:weight=0.1 --out remedies",
    ),
    "reproduce": (
        "reproduce",
        "Reproduce a paper's figures and claims: train, measure, judge, write a report.\n\n"
        "Completed runs are loaded from the store.",
    ),
    "figure": ("figure", "Redraw a figure from stored results, as PNG and SVG, and print its caption."),
    "claims": ("claims", "Judge the claims again from stored results; given names, case by case."),
    "report": (
        "report",
        "Rewrite a folder's figures, verdicts and page from its datasets, without training.\n\n"
        "Marked blocks of a Markdown file look like <!-- verdicts: begin --> … <!-- verdicts: end -->. Names: "
        "verdicts, verdicts_in_brief, causes, claims (case by case), provenance, costs, and caption_NAME for every "
        "figure.",
    ),
    "verify": ("verify", "Compare the files of results or a store with their manifest; exit with 1 if any differs."),
}
"""Function and help of each command."""
MODULES = {**dict.fromkeys(("figure", "claims", "report"), "reproduce"), "explore": "diagnose", "verify": "runs"}
"""Modules of commands that do not have the command's name."""

app.register_install_completion_command(add_to_startup=False)
for name, (attribute, text) in COMMANDS.items():
    app.command(f"recombine.cli.{MODULES.get(name, name)}:{attribute}", name=name, help=text)


@app.command(name="--version")
def version(
    *, verbose: Annotated[bool, Parameter(help="Versions, compiler, devices and folders, for bug reports.")] = False
) -> None:
    """Print the version and exit; with --verbose, everything that a bug report needs."""
    for name, value in _facts() if verbose else ():
        say(f"{name}: {value.replace(os.path.expanduser('~'), '~')}")
    if not verbose:
        say(__version__)


def _facts() -> Iterator[tuple[str, str]]:
    import platform
    from importlib import metadata

    import torch

    from recombine import kernels
    from recombine.files import cache_folder
    from recombine.store.store import store_path
    from recombine.training import device_name

    yield "recombine", f"{__version__} ({Path(__file__).parents[1]})"
    yield "python", f"{platform.python_version()} ({sys.executable})"
    yield "platform", platform.platform()
    yield "environment", ", ".join(f"{name}={value}" for name, value in os.environ.items() if name.startswith(PREFIX))
    installed = {package.metadata["name"]: package.version for package in metadata.distributions()}
    for name in LIBRARIES:
        yield name, installed.get(name, "not installed")
    devices = [torch.device("cpu"), *(torch.device("cuda", at) for at in range(torch.cuda.device_count()))]
    yield "devices", ", ".join(device_name(device) for device in devices)
    for device in dict.fromkeys(device.type for device in devices):
        yield f"kernels on {device}", kernels.why_not(device) or kernels.BACKENDS[device]
    yield "store", str(store_path(None).absolute())
    yield "cache", str(cache_folder())


def main(words: list[str] | None = None) -> NoReturn:
    """Run a command and exit with 0, or one of the codes above."""
    prepare_streams()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    words = sys.argv[1:] if words is None else words
    try:
        rest = without_imports([word for word in words if word != TRACEBACK])
        app.help_formatter = DefaultFormatter() if HELP_ALL in rest else CommonFlags()
        code = app(rest, console=console(), exit_on_error=False, print_error=False, result_action="return_value")
    except ReaderLeft:
        silence(sys.stdout)
        sys.exit(READER_LEFT)
    except (Exception, KeyboardInterrupt) as error:
        line, code = _explained(error)
        if TRACEBACK in words:
            traceback.print_exc()
        write_error(f"recombine: {' '.join(line.split())}")
    sys.exit(code if isinstance(code, int) else 0)


class CommonFlags(DefaultFormatter):
    """Help without the panels of rarely used flags."""

    def __call__(self, console: Any, options: Any, panel: Any) -> None:
        """Print a panel of common flags."""
        if not str(panel.title).startswith(MORE):
            super().__call__(console, options, panel)


def _explained(error: BaseException) -> tuple[str, int]:
    """Return one line about an error and the exit code; a bug of ours is raised again."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted; run the same command to continue", STOPPED
    if isinstance(error, RecombineError | CycloptsError):
        code = STOPPED if isinstance(error, Interrupted) else WRONG if isinstance(error, RunsFailed) else MISUSED
        return str(error), code
    if type(error).__name__ == "ValidationError":  # not by isinstance: importing pydantic is slow
        return str(from_pydantic(error, ())), MISUSED
    if isinstance(error, OSError):
        silence(sys.stdout)  # drop buffered output, for example when the disk is full
        return f"{error}; finished work is kept", MISUSED
    full = isinstance(error, RuntimeError) and ("alloc" in str(error) or "out of memory" in str(error))
    if full or isinstance(error, MemoryError):
        return "not enough memory; try a smaller size, width, batch or number of members", MISUSED
    raise error
