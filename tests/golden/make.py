"""Make the golden results and pictures again: `python -m tests.golden.make`; `… make pictures` only draws.

Look at every picture before a commit.

The results are of the tiny preset (tests/tiny.py): real networks, trained for a moment. Pictures are drawn from them.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import torch

from recombine.manifest import Manifest
from recombine.papers.forced_rendering import PAPER as DEFAULT
from recombine.reproduction.reproduce import reproduce
from recombine.reproduction.results import Results
from tests.golden.pictures import drawn
from tests.tiny import TINY

HERE = Path(__file__).parent


def main() -> None:
    """Train, measure, draw."""
    if sys.argv[1:] != ["pictures"]:
        measure()
    draw()


def measure() -> None:
    """Train and measure."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        preset = DEFAULT.preset_named("quick").changed(TINY)
        reproduce(list(DEFAULT.studies.values()), preset, os.path.join(folder, "runs"), out, device="cpu", processes=2)
        shutil.rmtree(HERE / "results", ignore_errors=True)
        Manifest(HERE / "results").replace(
            {f"data/{path.name}": path.read_bytes() for path in (out / "data").iterdir()}
        )


def draw() -> None:
    """Draw every figure."""
    results = Results.existing(HERE / "results")
    shutil.rmtree(HERE / "pictures", ignore_errors=True)
    (HERE / "pictures").mkdir()
    for spec in DEFAULT.figures.values():
        (HERE / "pictures" / f"{spec.name}.png").write_bytes(drawn(spec, results))


if __name__ == "__main__":
    main()
