"""Training and diagnosis on a data file, compared with generated data: steps per second and peak memory.

    python -m benchmarks.data sprites.npz shapes.h5
    python -m benchmarks.data scattered.npz --bins x=32,y=32 --repeats mean

Each measurement runs in a separate process. A *generated* training set is made once and stays on the device; a file's
is streamed, every combination once per epoch. Memory is the peak of the process minus torch's own: that of a process
that trains a network with the same layers on a few generated images.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from recombine.decoders import DECODERS, DecoderSpec, Interface, StagedDecoder
from recombine.diagnosis import diagnose
from recombine.specs import Recipe, RunSpec
from recombine.sweep import train
from recombine.tasks import ArrayTask, BumpTask, Task
from recombine.training import Ensemble, fit

SIDE, TURNS, STEPS = 64, 10, 500
PARTS = ("torch", "open", "speed", "train", "diagnose")
"""The measurements: a network on generated data, opening the file, speed on both, training and diagnosis."""


@DECODERS.register
class Dense(DecoderSpec):
    """Two dense layers from codes to the pixels of a grey or colour image."""

    kind: Literal["benchmark_dense"] = "benchmark_dense"
    width: int = 256

    def build(self, interface: Interface) -> StagedDecoder:
        shape = tuple(interface.image_shape)
        hidden = nn.Sequential(nn.Linear(interface.code_size, self.width), nn.ReLU())
        output = nn.Sequential(nn.Linear(self.width, math.prod(shape)), nn.Unflatten(1, shape))
        return StagedDecoder({"hidden": hidden, "output": output})


def generated(shape: tuple[int, ...]) -> Task:
    """Return a task whose examples are made once; in colour, noise of the same shape as the file's images."""
    if len(shape) == 2:
        return BumpTask(size=SIDE, training="draws:2000")
    noise = torch.rand(512, *shape[1:], shape[0], generator=torch.Generator().manual_seed(0))
    factors = {"x": [row // 32 for row in range(512)], "y": [row % 32 for row in range(512)]}
    return ArrayTask(noise, factors, training="draws:2000")


class Pace:
    """A network that trains on the CPU for a given time."""

    def __init__(self, task: Task, decoder: DecoderSpec) -> None:
        spec = RunSpec(task=task, decoder=decoder, recipe=Recipe(steps=10**6))
        ensemble = Ensemble(spec, torch.device("cpu"))
        self.state = ensemble.initial()
        self.fitting = fit(ensemble, self.state)
        self.rate(1.0)  # warm up until spans have their final length

    def rate(self, seconds: float) -> float:
        """Train for some seconds and return steps per second."""
        began, first = time.perf_counter(), int(self.state.step[0])
        while (took := time.perf_counter() - began) < seconds:
            next(self.fitting)
        return (int(self.state.step[0]) - first) / took


def speeds(task: ArrayTask, decoder: DecoderSpec, seconds: float) -> dict[str, float]:
    """Return medians over alternating turns, so that other jobs on the machine slow both."""
    streamed, made = Pace(task, decoder), Pace(generated(task.image_shape), decoder)
    turns = [(made.rate(seconds / TURNS), streamed.rate(seconds / TURNS)) for _ in range(TURNS)]
    return {
        "generated": statistics.median(turn[0] for turn in turns),
        "streamed": statistics.median(turn[1] for turn in turns),
        "share": statistics.median(turn[1] / turn[0] for turn in turns),
    }


def measure(
    what: str, path: Path, decoder: str, seconds: float, bins: str = "", repeats: str | None = None
) -> dict[str, float]:
    """Make one measurement in this process."""
    began, result, parsed = time.perf_counter(), {}, DECODERS.parse(decoder)
    if what == "torch":
        Pace(generated((SIDE, SIDE)), parsed)
    else:
        task = ArrayTask(data=path, training="each", bins=bins, repeats=repeats)
    if what == "speed":
        result = speeds(task, parsed, seconds)
    elif what == "train":
        spec = RunSpec(task=task, decoder=parsed, recipe=Recipe(steps=STEPS))
        with tempfile.TemporaryDirectory() as folder:
            train(spec, folder, device="cpu")
    elif what == "diagnose":
        diagnose(RunSpec(task=task, decoder=parsed).module(), data=task)
    seconds = time.perf_counter() - began
    return {**result, "seconds": seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def measured_apart(what: str, path: Path) -> dict[str, float]:
    """Make one measurement in a new process, with the same flags."""
    flags = [word for word in sys.argv[1:] if not Path(word).exists()]
    words = [sys.executable, "-m", "benchmarks.data", str(path), *flags, "--only", what]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path, nargs="+")
    parser.add_argument("--decoder", default="benchmark_dense")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument(
        "--threads", type=int, default=1, help="torch threads; more than there are free cores slows everything down"
    )
    parser.add_argument("--bins", default="")
    parser.add_argument("--repeats", choices=("mean", "keep"))
    parser.add_argument("--only", choices=PARTS)
    words = parser.parse_args()
    torch.set_num_threads(words.threads)
    if words.only:
        print(json.dumps(measure(words.only, words.path[0], words.decoder, words.seconds, words.bins, words.repeats)))
        return
    for path in words.path:
        table = Table("", "seconds", "peak, MiB", "above torch's own, MiB", title=f"{path.name}, {words.decoder}")
        results = {what: measured_apart(what, path) for what in PARTS}
        for what, result in results.items():
            above = result["peak"] - results["torch"]["peak"]
            table.add_row(what, f"{result['seconds']:.1f}", f"{result['peak']:.0f}", f"{above:.0f}")
        console, speed = Console(width=110), results["speed"]
        console.print(table)
        rates = f"{speed['streamed']:.0f} steps per second streamed, {speed['generated']:.0f} generated"
        console.print(f"{rates}: {speed['share']:.0%}")


if __name__ == "__main__":
    main()
