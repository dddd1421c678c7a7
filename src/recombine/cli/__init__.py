"""The command line. Commands are imported lazily, so that `recombine --help` is fast."""

from __future__ import annotations

import io
import os
import signal
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import Annotated, Any, NoReturn

from cyclopts import App, CycloptsError, Parameter
from cyclopts.help import DefaultFormatter

from recombine.cli.imports import FLAG as IMPORT
from recombine.cli.imports import without_imports
from recombine.cli.options import HELP, HELP_ALL, MORE
from recombine.console import ReaderLeft, console, say, silence, write_error
from recombine.errors import Interrupted, RecombineError, RunsFailed, from_pydantic, reason_of
from recombine.version import __version__

WRONG, MISUSED, STOPPED, READER_LEFT = 1, 2, 130, 141
"""Exit codes for failed runs, user errors (or output that cannot be written), interruptions and closed pipes."""
TRACEBACK = "--traceback"
LIBRARIES = ("torch", "numpy", "pydantic", "xarray", "safetensors", "triton", "distributed")

app = App(
    name="recombine",
    help="Will a decoder compose factors it has never seen together, where does factorization break, and what fixes "
    "it?",
    version_flags=(),  # --version is a command, below
    help_format="plaintext",
    help_epilogue=f"Every command also takes {HELP_ALL} (show all flags), {IMPORT} MODULE (load your own decoders, "
    f"tasks, metrics, …; see docs/extending.md) and {TRACEBACK} (show the full traceback on error).",
    help_flags=HELP,
    default_parameter=Parameter(negative_iterable=()),
    suppress_keyboard_interrupt=False,  # cyclopts would exit without a message
)
COMMANDS = {
    "train": (
        "train:train",
        "Train ensembles and print a table of scores; completed runs are loaded from the store.\n\n"
        "Task, decoder and recipe flags may be repeated: every combination of values is trained with every seed. "
        "A sweep can also be read from a file that uses the flag names as keys (docs/scale.md); flags override the "
        "file.\n\n"
        "Example: recombine train --encoding bump --encoding rate --width 16 --depth 3 --seeds 4",
    ),
    "runs": ("runs:app", "List, show, prune and export stored runs."),
    "diagnose": (
        "diagnose:diagnose",
        "Compute diagnostics for each stage of any PyTorch module.\n\n"
        "These cover geometry, factorization, probes, tuning, kernels and superposition.\n\n"
        "Example: recombine diagnose mycode:decoder --grid x=0:27,y=0:27 --encoding bump --holdout center:6:22",
    ),
    "explore": (
        "diagnose:explore",
        "Write an interactive page on which decoders run live as you vary the factors.\n\n"
        "The page is one HTML file. For modules that cannot run in a browser, the page shows precomputed outputs.\n\n"
        "Example: recombine explore mycode:decoder --grid x=0:27,y=0:27 --encoding bump --holdout center:6:22 "
        "--out page.html",
    ),
    "compare": (
        "compare:compare",
        "Train a decoder with each of several remedies, over many seeds, and compare them. Scores are trimmed means "
        "over seeds, with a 95 % interval from 8 seeds on. compose: seeds that compose, by the rule of diagnose; "
        "knows: what a remedy knows and the plain network does not; s: seconds per network.\n\n"
        "Example: recombine compare --decoder cnn --remedy broadcast --remedy hessian:weight=1e-6 --out remedies",
    ),
    "prescribe": (
        "prescribe:prescribe",
        "Say which remedy to use, by what remedies assume about kept images, predicted effects, and a trial of the "
        "best two on an inner hold-out (docs/remedies.md).\n\n"
        "Example: recombine prescribe mycode:decoder --data sprites.npz --holdout 'x>=8,shape==heart'",
    ),
    "arena": (
        "arena:arena",
        "Compare remedies on several tasks. Each is tuned alike: one of eight configurations is chosen on a second "
        "hold-out inside the kept combinations, and evaluated with fresh seeds (docs/remedies.md).\n\n"
        "Example: recombine arena --task bump --remedy broadcast --remedy isolated --out arena",
    ),
    "reproduce": (
        "reproduce:reproduce",
        "Reproduce a paper's figures and claims: train, measure, evaluate the claims, and write a report.\n\n"
        "Completed runs are loaded from the store. --study FILE does the same for a study of your own: arms, seeds, "
        "claims and figures in a TOML file (docs/own_studies.md).",
    ),
    "figure": ("reproduce:figure", "Redraw a figure from stored results, as PNG and SVG, and print its caption."),
    "claims": (
        "reproduce:claims",
        "Re-evaluate the claims from stored results. Pass claim names to see the results case by case.",
    ),
    "report": (
        "reproduce:report",
        "Regenerate the figures, verdicts and HTML page of a results folder, without training.\n\n"
        "--write updates marked blocks, such as <!-- verdicts: begin --> … <!-- verdicts: end -->. Available "
        "blocks: verdicts, verdicts_in_brief, causes, claims (case by case), provenance, costs, and caption_NAME for "
        "each figure.",
    ),
    "verify": (
        "runs:verify",
        "Check the files of a results folder or store against its manifest; exit with status 1 if any differ.",
    ),
}
"""Module, function and help text of each command."""

app.register_install_completion_command(add_to_startup=False)
for name, (function, text) in COMMANDS.items():
    app.command(f"recombine.cli.{function}", name=name, help=text)


@app.command(name="--version")
def version(
    *, verbose: Annotated[bool, Parameter(help="Also print devices, kernels and folders, for bug reports.")] = False
) -> None:
    """Print the version and exit; with --verbose, print everything needed for a bug report."""
    if not verbose:
        say(__version__)
        return

    import platform
    from importlib import metadata

    import torch

    from recombine import kernels
    from recombine.files import cache_folder
    from recombine.store.store import store_path
    from recombine.training import device_name

    installed = {package.metadata["name"]: package.version for package in metadata.distributions()}
    devices = [torch.device("cpu"), *(torch.device("cuda", at) for at in range(torch.cuda.device_count()))]
    facts = {
        "recombine": f"{__version__} ({Path(__file__).parents[1]})",
        "python": f"{platform.python_version()} ({sys.executable})",
        "platform": platform.platform(),
        "environment": ", ".join(
            f"{name}={value}" for name, value in os.environ.items() if name.startswith("RECOMBINE_")
        ),
        **{name: installed.get(name, "not installed") for name in LIBRARIES},
        "devices": ", ".join(device_name(device) for device in devices),
    }
    for device in dict.fromkeys(device.type for device in devices):
        facts[f"kernels on {device}"] = kernels.why_not(device) or kernels.BACKENDS[device]
    facts |= {"store": str(store_path(None).absolute()), "cache": str(cache_folder())}
    for name, value in facts.items():
        say(f"{name}: {value.replace(os.path.expanduser('~'), '~')}")


def main(words: list[str] | None = None) -> NoReturn:
    """Run a command and exit with status 0 or one of the codes above."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for undecodable file names
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    words = sys.argv[1:] if words is None else words
    try:
        rest = without_imports([word for word in words if word != TRACEBACK])
        app.help_formatter = DefaultFormatter() if HELP_ALL in rest else CommonFlags()
        code = app(rest, console=console(), exit_on_error=False, print_error=False, result_action="return_value")
    except ReaderLeft:
        silence(sys.stdout)
        sys.exit(READER_LEFT)
    except (Exception, KeyboardInterrupt, SystemExit) as error:  # the last from users' code
        line, code = _explained(error)
        if TRACEBACK in words:
            traceback.print_exc()
        write_error(f"recombine: {' '.join(line.split())}")
    sys.exit(code if isinstance(code, int) else 0)


class CommonFlags(DefaultFormatter):
    """Help formatter that hides the panels of rarely used flags."""

    def __call__(self, console: Any, options: Any, panel: Any) -> None:
        """Print a panel, unless its flags are rarely used."""
        if not str(panel.title).startswith(MORE):
            super().__call__(console, options, panel)


def _explained(error: BaseException) -> tuple[str, int]:
    """Return a one-line message about an error, and the exit code; re-raise unexpected errors."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted; run the same command to continue", STOPPED
    if isinstance(error, RecombineError | CycloptsError):
        code = STOPPED if isinstance(error, Interrupted) else WRONG if isinstance(error, RunsFailed) else MISUSED
        return str(error), code
    if type(error).__name__ == "ValidationError":  # not by isinstance: importing pydantic is slow
        return str(from_pydantic(error, ())), MISUSED
    if isinstance(error, OSError):
        silence(sys.stdout)  # drop buffered output, for example when the disk is full
        return f"{error}; completed work is saved", MISUSED
    if isinstance(error, SystemExit):
        return f"imported code exited ({reason_of(error)})", WRONG
    full = isinstance(error, RuntimeError) and ("alloc" in str(error) or "out of memory" in str(error))
    if full or isinstance(error, MemoryError):
        return "not enough memory; try a smaller size, width, batch or number of members", MISUSED
    if line := _users_line(error):
        return f"{line} failed: {reason_of(error)}; {TRACEBACK} shows where", MISUSED
    raise error


def _users_line(error: BaseException) -> str:
    """Return the last line in a user's own code that an error came through, or nothing if there is none."""
    installed = [Path(__file__).parents[1], *map(Path, sysconfig.get_paths().values())]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_file() and not any(path.is_relative_to(folder) for folder in installed):
            return f"{path.name}, line {frame.lineno},"
    return ""
