"""Time of the exact metric tensor, compared with a forward pass and with torch's Jacobian.

    python -m benchmarks.geometry

Every stage of a depth-4 width-64 CNN at all points of the grid. torch.autograd.functional.jacobian is timed on a few
rows of the output at one point and extrapolated, counting a pass through the whole network for every row. That is an
upper bound, but running it in full would take days. Peak memory is that of the whole process, above what it had before.
"""

from __future__ import annotations

import argparse
import resource
from functools import partial

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.timing import median_seconds
from recombine.metrics import Tap, metric_tensor
from recombine.metrics.stages import stage_sizes
from recombine.specs import RunSpec
from recombine.training import device_name, resolve_device

FORWARD_CHUNKS = (32, 112)
"""Points per chunk of the forward pass; the faster one counts."""
ROWS = 16
"""Rows of the Jacobian that are timed in reverse mode."""


def peak_bytes(device: torch.device) -> int:
    """Return the peak memory so far."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--decoder", default="cnn")
    parser.add_argument("--memory", type=int, help="memory budget in MiB (default: 256 on a CPU, 8192 on a GPU)")
    parser.add_argument("--repeats", type=int, default=3)
    words = parser.parse_args()
    device = resolve_device(words.device)
    words.memory = words.memory or (8192 if device.type == "cuda" else 256)
    spec = RunSpec(decoder=words.decoder)
    module, points = spec.module().to(device), spec.task.grid.points.to(device)

    def encode(values: torch.Tensor) -> torch.Tensor:
        return spec.task.codes(values).float()

    def reader(values: torch.Tensor, tap: Tap) -> None:
        codes = encode(values)
        tap("input", codes)
        for name, activation in module.walk(codes):
            tap(name, activation)

    sizes = stage_sizes(reader, points)

    @torch.no_grad()
    def forward(chunk: int) -> None:
        for part in points.split(chunk):
            module(encode(part))

    plain = min(median_seconds(partial(forward, chunk), device, words.repeats) for chunk in FORWARD_CHUNKS)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    before = peak_bytes(device)
    exact = median_seconds(lambda: metric_tensor(reader, points, memory=words.memory << 20), device, words.repeats)
    used = peak_bytes(device) - before

    def one_point() -> None:
        """Differentiate a few features; reverse mode takes one pass per row."""
        torch.autograd.functional.jacobian(lambda z: module(encode(z[None])).flatten()[:ROWS], points[0])

    per_row = median_seconds(one_point, device, 1) / ROWS
    reverse = per_row * sum(sizes.values()) * len(points)
    table = Table("", "seconds", "forward passes", title=f"{spec.decoder}, {len(points)} points, {device_name(device)}")
    table.add_row("plain forward", f"{plain:.3f}", "1")
    table.add_row("metric tensor, all stages", f"{exact:.3f}", f"{exact / plain:.2f}")
    table.add_row("torch.autograd.functional.jacobian (extrapolated)", f"{reverse:.0f}", f"{reverse / plain:.0f}")
    console = Console(width=110)
    console.print(table)
    checks = {
        f"metric tensor within 6 forward passes: {exact / plain:.2f}": exact <= 6 * plain,
        f"at least 50 times faster than reverse mode: {reverse / exact:.0f}": reverse >= 50 * exact,
        f"peak memory above the forward pass: {used / 2**20:.0f} MiB of {words.memory} MiB": used <= words.memory << 20,
    }
    for text, holds in checks.items():
        console.print(f"{'holds' if holds else 'FAILS'}: {text}", highlight=False)


if __name__ == "__main__":
    main()
