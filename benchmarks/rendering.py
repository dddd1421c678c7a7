"""Time to draw images, compared with writing them to memory once.

    python -m benchmarks.rendering --threads 2

Sprites of all shapes in colour, by default 10 000 images of 64², in batches; values and images are float32. Processor
seconds add up all threads, and are meaningful even on a shared machine. The last column is the time relative to writing
as many numbers once (multiplying an existing array).
"""

from __future__ import annotations

import argparse
import time
from functools import partial

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.timing import median_seconds
from recombine.tasks import BallsTask, BumpsTask, SpriteTask, Task
from recombine.training import device_name, resolve_device

ALLOWED = 1.0
"""Seconds allowed for 10 000 images of one sprite on two cores."""


def tasks(size: int) -> dict[str, Task]:
    """Return the tasks to draw."""
    six = "shape=7,scale=5,rotation=24,x=8,y=8,hue=6"
    two = "shape=7,scale=5,x=8,y=8,hue=3,shape2=7,x2=8,y2=8"
    return {
        "sprites, six factors": SpriteTask(size=size, factors=six, holdout="none"),
        "two sprites, eight factors": SpriteTask(size=size, sprites=2, factors=two, holdout="none"),
        "balls, four factors": BallsTask(size=size, holdout="none"),
        "bumps, five factors": BumpsTask(size=size, factors="x=9,y=9,size=4,intensity=4,orientation=6", holdout="none"),
    }


def draw(task: Task, values: Tensor, batch: int) -> None:
    """Draw every batch and discard it; this is what is timed."""
    for part in values.split(batch):
        task.render(part)


def processor_seconds(task: Task, values: Tensor, batch: int) -> float:
    """Return the processor seconds of all threads for drawing everything once."""
    began = time.process_time()
    draw(task, values, batch)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=5)
    words = parser.parse_args()
    torch.set_num_threads(words.threads)
    device = resolve_device(words.device)
    columns = ("", "seconds", "processor seconds", "images per second", "relative to writing once")
    table = Table(*columns, title=f"{words.images} images, {device_name(device)}")
    times = {}
    for name, task in tasks(words.size).items():
        chosen = torch.randint(task.grid.size, (words.images,), generator=torch.Generator().manual_seed(0))
        values = task.grid.points[chosen].float().to(device)
        times[name] = seconds = median_seconds(partial(draw, task, values, words.batch), device, words.repeats)
        busy = min(processor_seconds(task, values, words.batch) for _ in range(words.repeats))
        numbers = torch.ones(words.batch, *task.image_shape, device=device)
        once = median_seconds(partial(torch.mul, numbers, 0.5), device, words.repeats) * words.images / words.batch
        cells = f"{seconds:.3f}", f"{busy:.3f}", f"{words.images / seconds:.0f}", f"{seconds / once:.1f}"
        table.add_row(name, *cells)
    console = Console(width=100)
    console.print(table)
    seconds = next(iter(times.values()))
    holds = "holds" if seconds < ALLOWED else "FAILS"
    console.print(f"{holds}: images of one sprite in under {ALLOWED:g} s: {seconds:.3f} s", highlight=False)


if __name__ == "__main__":
    main()
