"""Training time of the training panel's decoder in Chromium, compared with torch on one thread.

    python -m benchmarks.live_training --seeds 2

Seconds in the page are those that the panel shows: training, and evaluating the grid meanwhile. Torch's are for
training alone.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from benchmarks.explorer import BROWSER
from recombine.page import explore
from recombine.papers.forced_rendering import PAPER
from recombine.specs import RunSpec
from recombine.training import Ensemble, fit

ALLOWED = 15.0
"""Seconds allowed for a training on two slow, otherwise idle cores."""


def in_page(page: Any, stripes: bool, seed: int) -> tuple[float, float]:
    """Train in the page, and return the seconds and the share of held-out bumps in place."""
    page.locator("#training-seed").fill(str(seed))
    page.locator("#training-isolated").set_checked(stripes)
    page.locator("#training-run").click()
    while not page.evaluate("window.training.run?.done ?? false"):
        page.wait_for_timeout(50)
    seconds, share = page.evaluate("(({seconds, heldOut}) => [seconds, heldOut])(window.training.run.latest)")
    return seconds, share


def by_torch(spec: RunSpec) -> float:
    """Train with torch and return the seconds."""
    ensemble = Ensemble([spec], torch.device("cpu"))
    state, began = ensemble.initial(), time.perf_counter()
    for _ in fit(ensemble, state):
        pass
    return time.perf_counter() - began


def main() -> None:
    """Train in both and print a table."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    seeds = parser.parse_args().seeds
    torch.set_num_threads(1)
    table = Table("data", "seed", "page, s", f"allowed, s: {ALLOWED:g}", "held out, in place", "torch, s")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = explore(nn.Linear(2, 16), "x=0:3,y=0:3", training=True).save(Path(folder) / "page.html")
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = chromium.new_page()
        page.goto(path.as_uri())
        live = PAPER.training_panel.spec
        for spec in (live, live.replace(task=live.task.replace(isolated=True))):
            for seed in range(seeds):
                seconds, share = in_page(page, spec.task.isolated, seed)
                within = "within" if seconds <= ALLOWED else "over"
                data = "with stripes" if spec.task.isolated else "without stripes"
                torchs = by_torch(spec.replace(seed=seed))
                table.add_row(data, str(seed), f"{seconds:.1f}", within, f"{share:.0%}", f"{torchs:.1f}")
        chromium.close()
    Console().print(table)


if __name__ == "__main__":
    main()
