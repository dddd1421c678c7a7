"""A wheel of this tree in an environment of its own, and commands in it as its users run them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12", "3.13")
OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"
CONSTRAINTS = os.environ.get("RECOMBINE_TEST_INSTALL")
"""Set by `make test-wheel`: libraries are installed, for every Python, with these constraints; otherwise those of
the environment that runs the tests are used, for its own Python."""
NOBODY = 65534


def pythons() -> list[str]:
    """Versions to try."""
    return [version for version in PYTHONS if python_of(version)] if CONSTRAINTS else [OWN]


def python_of(version: str) -> str | None:
    """An interpreter of a version: the system's rather than one in somebody's home, which nobody else may read."""
    names = (f"/usr/bin/python{version}", f"python{version}", *([sys.executable] if version == OWN else []))
    return next((path for path in map(shutil.which, names) if path and _is_working(path)), None)


def _is_working(python: str) -> bool:
    """Whether it runs: a manager of versions has names for those that are not in use."""
    return subprocess.run([python, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0


def built(source: Path, folder: Path) -> Path:
    """The wheel that a source tree or an sdist builds."""
    pip("wheel", "--no-deps", "--wheel-dir", folder, source)
    return next(folder.glob("*.whl"))


def pip(*words: object, python: object = sys.executable) -> None:
    """Run pip, quietly."""
    command = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL, env=variables)


def environment(folder: Path, version: str, wheel: Path) -> Path:
    """The command of a new environment that has the wheel and not the repository."""
    python = python_of(version)
    assert python is not None
    subprocess.run([python, "-m", "venv", folder], check=True)
    own = folder / "bin" / "python"
    if CONSTRAINTS:
        pip("install", "-c", ROOT / CONSTRAINTS, wheel, python=own)
    else:
        pip("install", "--no-deps", "--no-index", wheel, python=own)
        libraries = folder / "lib" / f"python{version}" / "site-packages" / "libraries.pth"
        libraries.write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "recombine"


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


class Desk(NamedTuple):
    """A folder to work in, and whose: the variables there are, and whether it is nobody in particular."""

    command: Path
    folder: Path
    variables: dict[str, str]
    is_nobody: bool = False

    def run(self, *words: object) -> Ended:
        """Run a command, with no variables of the tests'."""
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if self.is_nobody else {}
        done = subprocess.run(
            [str(word) for word in (self.command, *words)],
            cwd=self.folder, env=self.variables, capture_output=True, text=True, timeout=900, **user,
        )  # fmt: skip
        return Ended(done.returncode, done.stdout, done.stderr)
