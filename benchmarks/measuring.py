"""Time to measure stage profiles one network at a time, compared with all networks in one batch.

    python -m benchmarks.measuring --members 32

Ratios are within one run on one device. On a CPU, studies measure one network at a time.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from functools import partial

from rich.console import Console
from rich.table import Table

from benchmarks.timing import median_seconds
from recombine.reproduction.measuring import Batch, budget, fitting_runs, stage_profile
from recombine.specs import Recipe, RunSpec
from recombine.sweep import train
from recombine.training import device_name, resolve_device

DECODERS = ("cnn", "mlp", "low_rank")


def profiles(batches: Sequence[Batch]) -> None:
    """Measure the batches; this is what is timed."""
    for batch in batches:
        stage_profile(batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--decoder", nargs="+", default=DECODERS)
    parser.add_argument("--members", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    words = parser.parse_args()
    device = resolve_device(words.device)
    columns = ("", "members", "one by one, s", "in a batch, s", "the batch is faster by")
    table = Table(*columns, title=f"stage profiles, {device_name(device)}")
    for decoder in words.decoder:
        spec = RunSpec(decoder=decoder, recipe=Recipe(steps=1))
        members = min(words.members, fitting_runs(spec, budget(device)))
        with tempfile.TemporaryDirectory() as folder:
            runs = train(spec.seeds(range(members)), folder, device=words.device)
            ways = [[Batch([run], device) for run in runs], [Batch(runs, device)]]
            turn, together = (median_seconds(partial(profiles, way), device, words.repeats) for way in ways)
        ratio = f"{turn / together:.2f}"
        table.add_row(str(spec.decoder), str(members), f"{turn:.3f}", f"{together:.3f}", ratio)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
