"""Frames per second, tasks of the main thread and forward passes while the point is dragged on an explorer page.

    python -m benchmarks.explorer                      # CNN, transformer, and both side by side
    python -m benchmarks.explorer --page page.html     # decoders of a page

Decoders have the published sizes and random weights. Every page is dragged by pointer events, one per frame. The
longest task is that of the page's main thread in Chromium's trace: wall-clock, and processor time, which other
processes do not prolong. `outputs` are drawn per second for each column; `forward` is the median of single passes in
the page.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import recombine as rc

BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chromium")
SLOWEST, LONGEST = 30, 50
"""Frames per second, and milliseconds of a task, that are allowed on two quiet cores."""
DRAG = """(seconds) => new Promise((done) => {
  const { explorer } = window;
  const canvas = document.getElementById('plane'), box = canvas.getBoundingClientRect();
  const drawn = explorer.sides.map(() => 0), began = performance.now();
  let last = explorer.sides.map((side) => side.shown), frames = 0;
  const pointer = (type) => {
    const turn = 6 * (performance.now() - began) / 1000;
    const [x, y] = [0.5 + 0.35 * Math.cos(turn), 0.5 + 0.35 * Math.sin(1.3 * turn)];
    const at = { clientX: box.left + x * box.width, clientY: box.top + y * box.height, pointerId: 1, bubbles: true };
    canvas.dispatchEvent(new PointerEvent(type, at));
  };
  canvas.setPointerCapture = () => {};
  canvas.hasPointerCapture = () => true;
  pointer('pointerdown');
  const next = () => {
    frames += 1;
    explorer.sides.forEach((side, k) => { drawn[k] += side.shown !== last[k]; last[k] = side.shown; });
    const spent = (performance.now() - began) / 1000;
    if (spent < seconds) { pointer('pointermove'); return requestAnimationFrame(next); }
    pointer('pointerup');
    done({ frames: frames / spent, outputs: drawn.map((own) => own / spent) });
  };
  requestAnimationFrame(next);
})"""
FORWARD = """(number) => {
  const decoder = window.explorer.decoders[number], times = [];
  for (let k = 0; k < 25; k += 1) {
    const start = performance.now();
    decoder.output(window.explorer.state.at);
    times.push(performance.now() - start);
  }
  return times.slice(10).sort((one, other) => one - other)[7];
}"""


def write_page(folder: Path) -> Path:
    """Write a page with a CNN and a transformer of the published sizes."""
    task = rc.BumpTask(size=28)
    decoders = {"CNN": rc.CNN(width=64, depth=4), "transformer": rc.Transformer()}
    modules = {name: rc.RunSpec(task=task, decoder=own).module() for name, own in decoders.items()}
    settings = {"encode": task.encoding, "holdout": task.held_out, "targets": task.render}
    return rc.explore(modules, task.grid, **settings).save(folder / "page.html")


def longest_task(trace: dict[str, Any]) -> tuple[float, float]:
    """Return the longest task of the page's main thread in ms: wall-clock, and processor time."""
    events = trace["traceEvents"]
    mains = {(e["pid"], e["tid"]) for e in events
             if e["name"] == "thread_name" and e["args"]["name"] == "CrRendererMain"}  # fmt: skip
    tasks = [e for e in events if "dur" in e and e["name"].endswith("RunTask") and (e["pid"], e["tid"]) in mains]
    return max(e["dur"] for e in tasks) / 1000, max(e.get("tdur", 0) for e in tasks) / 1000


def main() -> None:
    """Drag over each decoder and over the first two, and print a table."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, help="an explorer page; default: one of a CNN and a transformer")
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of a drag")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    table = Table(
        "decoders", f"frames/s (at least {SLOWEST})", f"longest task, ms (at most {LONGEST})", "of processor time",
        "outputs/s", "forward, ms",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = (arguments.page or write_page(Path(folder))).resolve()
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": 1200, "height": 900})
        page.goto(path.as_uri() + "#beside=-1")
        page.wait_for_timeout(2000)
        names = page.evaluate("window.explorer.decoders.map((decoder) => decoder.data.name)")
        for decoder, beside in [*((k, -1) for k in range(len(names))), *([(0, 1)] if len(names) > 1 else [])]:
            page.evaluate("([decoder, beside]) => window.explorer.set({ decoder, beside })", [decoder, beside])
            page.wait_for_timeout(3000)
            chromium.start_tracing(page=page, categories=["toplevel"])
            rates = page.evaluate(DRAG, arguments.seconds)
            wall, cpu = longest_task(json.loads(chromium.stop_tracing()))
            shown = [names[decoder]] + ([names[beside]] if beside >= 0 else [])
            outputs = ", ".join(f"{own:.0f}" for own in rates["outputs"])
            forward = f"{page.evaluate(FORWARD, decoder):.0f}" if beside < 0 else ""
            table.add_row(" and ".join(shown), f"{rates['frames']:.0f}", f"{wall:.0f}", f"{cpu:.0f}", outputs, forward)
        chromium.close()
    Console().print(table)


if __name__ == "__main__":
    main()
