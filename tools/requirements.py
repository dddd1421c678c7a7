"""Print requirements from pyproject.toml for pip, one per line: as written, or the lowest allowed version of each.

    python tools/requirements.py release            the requirements of an extra
    python tools/requirements.py --lowest project dask test=ranges

`project` stands for the dependencies of the package itself. With `--lowest`, `>=X` becomes `==X`, so every lower bound
must be an existing version. `NAME=ranges` leaves an extra unchanged.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?P<extras>\[[\w, -]+\])?\s*(?P<versions>[^;]*?)\s*(?P<marker>;.*)?")


def requirements(project: dict[str, Any], group: str) -> list[str]:
    """Return the requirements of `project` or of an extra, including those of the extras it refers to."""
    extras = project["optional-dependencies"]
    if group != "project" and group not in extras:
        raise SystemExit(f"extra must be one of project, {', '.join(extras)}, got {group!r}")
    return list(_expanded(project, project["dependencies"] if group == "project" else extras[group]))


def _expanded(project: dict[str, Any], lines: list[str]) -> Iterator[str]:
    for line in lines:
        match = REQUIREMENT.fullmatch(line)
        assert match is not None, line
        if match["name"] == project["name"]:
            for extra in match["extras"].strip("[]").split(","):
                yield from requirements(project, extra.strip())
        else:
            yield line


def lowest(line: str) -> str:
    """Return a requirement with its lowest allowed version.

    >>> lowest("pydantic>=2.8,<3")
    'pydantic==2.8'
    >>> lowest("triton>=3.2; sys_platform == 'linux'")
    "triton==3.2; sys_platform == 'linux'"
    """
    match = REQUIREMENT.fullmatch(line)
    bounds = re.findall(r">=\s*([\w.]+)", match["versions"]) if match else []
    if match is None or len(bounds) != 1:
        raise SystemExit(f"requirement must have a lower bound, such as 'numpy>=1.26', got {line!r}")
    return f"{match['name']}{match['extras'] or ''}=={bounds[0]}{match['marker'] or ''}"


def main(words: list[str]) -> None:
    """Print the requirements named on the command line."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    is_lowest = "--lowest" in words
    for word in words:
        if word == "--lowest":
            continue
        group, _, form = word.partition("=")
        for line in requirements(project, group):
            print(lowest(line) if is_lowest and form != "ranges" else line)


if __name__ == "__main__":
    main(sys.argv[1:])
