"""Tutorials read and run as plain Python, without Jupyter: what the tests of `docs/tutorials` share.

A cell tagged `parameters` has the sizes, one assignment a line. A short run gives them other values after that cell has
been run. The first code cell, tagged `skip-execution` (a tag of nbclient), installs the package and is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
NAMES = (
    "add_a_decoder", "diagnose_my_model", "encoder_or_decoder", "fix_my_model", "modules_of_other_libraries",
    "my_own_data", "new_holdout", "remedy_in_my_loop", "reproduce_a_figure",
)  # fmt: skip
PARAMETERS, INSTALL = "parameters", "skip-execution"


def read(name: str) -> dict[str, Any]:
    """A tutorial's JSON."""
    return dict(json.loads((TUTORIALS / f"{name}.ipynb").read_text(encoding="utf-8")))


def code_cells(name: str) -> Iterator[tuple[str, list[str], str]]:
    """Of each code cell its id, tags and source."""
    for cell in read(name)["cells"]:
        if cell["cell_type"] == "code":
            yield cell["id"], cell["metadata"].get("tags", []), "".join(cell["source"])


def run(name: str, sizes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The names that a tutorial leaves behind, run in the present folder; with `sizes`, in short."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for identity, tags, source in code_cells(name):
        if INSTALL in tags:
            continue
        exec(compile(source, f"{name}.ipynb, cell {identity}", "exec", dont_inherit=True), namespace)
        if PARAMETERS in tags and sizes is not None:
            if unknown := set(sizes) - set(namespace):
                raise KeyError(f"no such sizes in {name}: {unknown}")
            namespace |= sizes
    return namespace
