"""`recombine completion`: a script for the user's shell, printed rather than installed."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from cyclopts import Parameter

from recombine.checks import one_of
from recombine.screen import console

Shell = Literal["bash", "zsh", "fish"]
SHELLS: tuple[str, ...] = get_args(Shell)


def completion(
    shell: Annotated[str, Parameter(name="shell", help=f"One of {', '.join(SHELLS)}.")],
) -> None:
    """Print the script of a shell."""
    from recombine.cli import app

    one_of("shell", shell, SHELLS)
    known: Shell = shell  # type: ignore[assignment]
    console().write_lines(app.generate_completion(shell=known).splitlines())
