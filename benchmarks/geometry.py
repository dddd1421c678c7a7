"""The exact metric tensor beside a plain forward pass and beside torch's own Jacobian.

    python -m benchmarks.geometry

Every stage of a depth-4 width-64 CNN at all 784 points of the grid. torch.autograd.functional.jacobian is timed on a
few points and a few features of the output stage and scaled up by the number of features: in full it would take hours.
Peak memory is of the whole process, above what it had before.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table

from recombine.metrics import decoder_reader, metric_tensor, stage_sizes
from recombine.specs import RunSpec
from recombine.training import device_name, resolve_device

FORWARD_CHUNK = 32


def seconds(action: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Median time of an action."""
    found = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        action()
        if device.type == "cuda":
            torch.cuda.synchronize()
        found.append(time.perf_counter() - began)
    return statistics.median(found[1:])


def peak_bytes(device: torch.device) -> int:
    """Largest memory so far."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--decoder", default="cnn")
    parser.add_argument("--memory", type=int, default=256, help="budget in MiB")
    parser.add_argument("--repeats", type=int, default=3)
    words = parser.parse_args()
    device = resolve_device(words.device)
    spec = RunSpec(decoder=words.decoder)
    module, points = spec.module().to(device), spec.task.grid.points.to(device)

    def encode(values: torch.Tensor) -> torch.Tensor:
        return spec.task.codes(values).float()

    reader = decoder_reader(module, encode)
    sizes = stage_sizes(reader, points)

    @torch.no_grad()
    def forward() -> None:
        for part in points.split(FORWARD_CHUNK):
            module(encode(part))

    plain = seconds(forward, device, words.repeats)
    before = peak_bytes(device)
    exact = seconds(lambda: metric_tensor(reader, points, memory=words.memory << 20), device, words.repeats)
    used = peak_bytes(device) - before

    def one_point() -> None:
        """All rows of a few features: reverse mode takes one pass a row."""
        torch.autograd.functional.jacobian(lambda z: module(encode(z[None])).flatten()[:ROWS], points[0])

    ROWS = 16
    a_row = seconds(one_point, device, 1) / ROWS
    reverse = a_row * sum(sizes.values()) * len(points)
    table = Table("", "seconds", "forward passes", title=f"{spec.decoder}, {len(points)} points, {device_name(device)}")
    table.add_row("plain forward", f"{plain:.3f}", "1")
    table.add_row("metric tensor, all stages", f"{exact:.3f}", f"{exact / plain:.2f}")
    table.add_row("torch.autograd.functional.jacobian (scaled up)", f"{reverse:.0f}", f"{reverse / plain:.0f}")
    console = Console(width=110)
    console.print(table)
    console.print(f"ours over reverse mode: {reverse / exact:.0f} times faster")
    console.print(f"peak memory above the forward pass: {used / 2**20:.0f} MiB, budget {words.memory} MiB")


if __name__ == "__main__":
    main()
