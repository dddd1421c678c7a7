"""Speed of the engine, compared with a plain loop and with the machine's measured limits, in one run.

    python -m benchmarks.performance --device cpu --out results/performance/cpu.json
    python -m benchmarks.performance --from results/performance/cpu.json --write docs/performance.md

Parts: engine, kernels, members, growth, geometry, store, precision, cp. Records are JSON files; new parts are merged
into an existing file. `--write` fills the marked blocks of a document (engine_NAME, … for a record called NAME).
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.blocks import performance_blocks, performance_figure
from benchmarks.cases import CASES, CPU_CASES, PUBLISHED, Case
from benchmarks.decompositions import compare_decompositions
from benchmarks.kernels import compare_kernels
from benchmarks.plain import WORKERS, PlainLoop, graphed_seconds
from benchmarks.precision import compare_precisions
from benchmarks.timing import Timed, copy_rate, median_seconds, product_rate, timed, timed_in_processes, work_of
from recombine.metrics import Tap, metric_tensor
from recombine.reproduction.reporting import save_figure
from recombine.specs import Recipe, RunSpec
from recombine.store import Store
from recombine.sweep import train
from recombine.sweep.group import provenance
from recombine.tasks import BumpsTask, BumpTask
from recombine.training import DEFAULT_PRECISION, DEVICES, resolve_device

Say = Callable[[str], None]
MEMBERS = (1, 4, 16, 64, 256, 1024)
GROWTH: dict[str, tuple[int, ...]] = {
    "size": (14, 28, 56), "factors": (2, 3, 4, 5), "depth": (2, 4, 8), "width": (16, 32, 64),
}  # fmt: skip
FACTORS = ("x=28", "y=28", "intensity=4", "size=0.75..1.5..4", "orientation=6")
GROWTH_MEMBERS = 32
POINTS_MEMORY = {"cpu": 256 << 20, "cuda": 8 << 30}
STORED_RUNS = 64
CPU_ROUNDS = 3


@dataclass(frozen=True)
class Setting:
    """Where and how a benchmark runs."""

    device: torch.device
    precision: str
    processes: int
    """Number of single-threaded processes on a CPU."""
    steps: int
    """Steps to time for each method; slow ones take fewer."""
    say: Say


def measure(
    device: torch.device, parts: Sequence[str], *, precision: str | None = None, steps: int | None = None,
    processes: int | None = None, say: Say = lambda line: None,
) -> dict[str, Any]:  # fmt: skip
    """Measure some parts, and return a record with the machine's limits and provenance.

    Parameters
    ----------
    device
        Where networks train.
    parts
        Any of `PARTS`.
    precision
        Numerical precision. Default: the device's default.
    steps
        Steps to time for each method. Default: 256 on a GPU, 12 on a CPU.
    processes
        Number of single-threaded processes on a CPU. Default: one per core.
    say
        Called with a line for every result.

    Returns
    -------
    `provenance`, `limits` and one entry per part, as plain numbers and strings.
    """
    precision = precision or DEFAULT_PRECISION[device.type]
    steps = steps or (256 if device.type == "cuda" else 12)
    setting = Setting(device, precision, processes or max(1, torch.get_num_threads()), steps, say)
    kinds = dict.fromkeys(("float32", "tf32", "bf16") if device.type == "cuda" else ("float32", precision))
    limits = {"copy": copy_rate(device), **{kind: product_rate(device, kind) for kind in kinds}}
    say(", ".join(f"{name} {rate / 1e12:.3g} T/s" for name, rate in limits.items()))
    record: dict[str, Any] = {"provenance": provenance(device, precision), "limits": limits}
    for part in parts:
        record[part] = PARTS[part](setting, limits)
    return record


def engine(setting: Setting, limits: dict[str, float]) -> list[dict[str, Any]]:
    """Time every case as a plain loop, as a single graphed network and in our engine, and compute the floor."""
    names = CASES if setting.device.type == "cuda" else CPU_CASES
    return [_case(CASES[name], setting, limits) for name in names]


def _case(case: Case, setting: Setting, limits: dict[str, float]) -> dict[str, Any]:
    plain_spec, spec = case.spec("float32"), case.spec(setting.precision)
    gpu = setting.device.type == "cuda"
    graphed = graphed_seconds(plain_spec, setting.device, min(setting.steps, 100)) if gpu else None
    loops = [PlainLoop(plain_spec, setting.device, workers) for workers in (WORKERS, 0)]
    rounds: list[tuple[float, float, Timed]] = []
    for _ in range(1 if gpu else CPU_ROUNDS):  # alternating, since the speed of a shared machine varies
        plain, lone = (loop.seconds(setting.steps) for loop in loops)
        ours = (
            timed(spec, case.members, setting.device, setting.steps)
            if gpu
            else timed_in_processes(spec, setting.processes, setting.steps)
        )
        rounds.append((plain, lone, ours))
    plain, lone = statistics.median(times[0] for times in rounds), statistics.median(times[1] for times in rounds)
    ours = _median_of([times[2] for times in rounds])
    work = work_of(spec)
    floor = work.floor(limits[setting.precision], limits["copy"]) * spec.total_steps
    rate = work.operations * spec.total_steps / ours.seconds
    ratio = plain / ours.seconds
    times = f"plain {plain:.3g} s ({lone:.3g} without workers), ours {ours.seconds:.3g} s per model, {ratio:.3g} times"
    setting.say(f"{case.name}: {times}")
    return {
        "case": case.name, "decoder": case.decoder, "members": case.members if gpu else setting.processes,
        "plain": plain, "plain_without_workers": lone, "graphed": graphed, "ours": ours.seconds, "ratio": ratio,
        "step": ours.step, "setup": ours.setup, "peak_bytes": ours.peak, "rate": rate,
        "share": rate / limits[setting.precision], "floor": floor, "gap": ours.seconds / floor,
        "bound": "bytes" if work.moved / limits["copy"] > work.operations / limits[setting.precision] else "operations",
    }  # fmt: skip


def _median_of(times: Sequence[Timed]) -> Timed:
    """Return the median by seconds."""
    return sorted(times, key=lambda one: one.seconds)[len(times) // 2]


def kernels(setting: Setting, limits: dict[str, float]) -> list[dict[str, Any]]:
    """Time the engine with and without each kernel."""
    return compare_kernels(setting.device, setting.precision, setting.steps, setting.say)


def members(setting: Setting, limits: dict[str, float]) -> list[dict[str, Any]]:
    """Time one recipe by the number of members that train together."""
    spec = CASES["CNN depth 4"].spec(setting.precision)
    counts = MEMBERS if setting.device.type == "cuda" else (1, 2, 4)
    return _rows(setting, "members", [(count, spec, count, _steps(setting, count)) for count in counts])


def growth(setting: Setting, limits: dict[str, float]) -> list[dict[str, Any]]:
    """Time one recipe by size, number of factors, depth, width and steps."""
    count = GROWTH_MEMBERS if setting.device.type == "cuda" else 1
    base = CASES["CNN depth 4"].spec(setting.precision)
    rows = []
    for axis, values in GROWTH.items():
        timings = [(value, _grown(base, axis, value), count, _steps(setting, count)) for value in values]
        rows += _rows(setting, axis, timings)
    lengths = [times * setting.steps for times in (1, 2, 4)]
    return rows + _rows(setting, "steps", [(length, base, count, length) for length in lengths])


def _grown(base: RunSpec, axis: str, value: int) -> RunSpec:
    """Return the recipe with another size, number of factors, depth or width."""
    if axis == "size":
        return base.replace(task=base.task.replace(size=value))
    if axis == "factors":
        return base.replace(task=BumpsTask(**PUBLISHED, factors=FACTORS[:value], holdout="center:factors=x,y"))
    return base.replace(decoder=base.decoder.replace(**{axis: value}))


def _steps(setting: Setting, count: int) -> int:
    return max(4, min(setting.steps, 64 * 64 // count))


def _rows(setting: Setting, axis: str, timings: list[tuple[int, RunSpec, int, int]]) -> list[dict[str, Any]]:
    """Time specs along an axis, each with its value, members and steps.

    On a CPU they are timed alternately several times, so that medians stay comparable if the machine is slow for a
    while.
    """
    rounds = [
        [timed(spec, count, setting.device, steps) for _, spec, count, steps in timings]
        for _ in range(1 if setting.device.type == "cuda" else CPU_ROUNDS)
    ]
    rows = []
    for (value, _, count, _), times in zip(timings, zip(*rounds, strict=True), strict=True):
        done = _median_of(times)
        setting.say(f"{axis} {value}: {done.seconds:.3g} s per model, {1e3 * done.step:.3g} ms per step of {count}")
        rows.append({"axis": axis, "value": value, **asdict(done), "members": count})
    return rows


def geometry(setting: Setting, limits: dict[str, float]) -> dict[str, float]:
    """Time the exact metric tensor of every stage at every point, and a forward pass."""
    spec, device = RunSpec(), setting.device
    module, points = spec.module().to(device), spec.task.grid.points.to(device)

    def encode(values: torch.Tensor) -> torch.Tensor:
        return spec.task.codes(values).float()

    @torch.no_grad()
    def forward() -> None:
        for part in points.split(112):
            module(encode(part))

    def reader(values: torch.Tensor, tap: Tap) -> None:
        codes = encode(values)
        tap("input", codes)
        for name, activation in module.walk(codes):
            tap(name, activation)

    plain = median_seconds(forward, device, 3)
    exact = median_seconds(lambda: metric_tensor(reader, points, memory=POINTS_MEMORY[device.type]), device, 3)
    setting.say(f"metric tensor: {exact / plain:.3g} forward passes")
    return {"forward": plain, "metric": exact, "passes": exact / plain, "points": len(points)}


def store(setting: Setting, limits: dict[str, float]) -> dict[str, float]:
    """Measure how many small runs per second the store writes, loads and verifies."""
    small = RunSpec(task=BumpTask(size=8, training="draws:16"), decoder="mlp:width=8:depth=1", recipe=Recipe(steps=1))
    specs = small.seeds(range(STORED_RUNS))
    with tempfile.TemporaryDirectory() as folder:
        kept = Store(Path(folder))
        began = time.perf_counter()
        train(specs, kept, device="cpu", progress=False)
        written = time.perf_counter()
        train(specs, kept, device="cpu", progress=False)
        served = time.perf_counter()
        problems = [problem for _, problem in kept.verify() if problem]
        verified = time.perf_counter()
    assert not problems
    rates = {
        "written": STORED_RUNS / (written - began), "served": STORED_RUNS / (served - written),
        "verified": STORED_RUNS / (verified - served),
    }  # fmt: skip
    setting.say("store: " + ", ".join(f"{name} {rate:.3g} per second" for name, rate in rates.items()))
    return rates


def precision(setting: Setting, limits: dict[str, float]) -> dict[str, Any]:
    """Test whether a precision can be distinguished from float32 by its errors."""
    return compare_precisions(setting.device, setting.say)


def cp(setting: Setting, limits: dict[str, float]) -> dict[str, Any]:
    """Time CP decompositions of many outputs, at once and one at a time."""
    return compare_decompositions(setting.device, setting.say)


PARTS: dict[str, Callable[[Setting, dict[str, float]], Any]] = {
    "engine": engine, "kernels": kernels, "members": members, "growth": growth, "geometry": geometry, "store": store,
    "precision": precision, "cp": cp,
}  # fmt: skip
USUAL = ("engine", "kernels", "members", "growth", "geometry", "store")
"""The default: without the precision test, which trains whole networks, and without cp, which is not about training."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}; default: all but precision and cp")
    parser.add_argument("--device", default="auto", choices=DEVICES)
    parser.add_argument("--precision", choices=("float32", "tf32", "bf16"))
    parser.add_argument("--steps", type=int, help="steps to time; times are extrapolated to whole trainings")
    parser.add_argument("--processes", type=int, help="single-threaded processes on a CPU (default: one per core)")
    parser.add_argument("--out", type=Path, help="JSON file for the record")
    parser.add_argument("--from", dest="source", type=Path, nargs="+", help="use these records instead of measuring")
    parser.add_argument("--write", type=Path, help="document whose marked blocks to fill")
    words = parser.parse_args()
    if unknown := set(words.parts) - set(PARTS):
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}")
    if words.source:
        records = {path.stem: json.loads(path.read_text()) for path in words.source}
    else:
        record = measure(
            resolve_device(words.device), words.parts or USUAL, precision=words.precision, steps=words.steps,
            processes=words.processes, say=print,
        )  # fmt: skip
        if words.out:
            before = json.loads(words.out.read_text()) if words.out.exists() else {}
            words.out.write_text(json.dumps({**before, **record}, indent=1))
        records = {words.out.stem if words.out else "now": record}
    if words.write:
        write_document(words.write, records)


def write_document(path: Path, records: dict[str, dict[str, Any]]) -> None:
    """Fill a document's marked blocks from records, and draw a figure of each into `images` beside it."""
    text = path.read_text()
    for name, record in records.items():
        for block, content in performance_blocks(record, name).items():
            mark = re.compile(rf"(<!-- {block}: begin -->\n).*?(\n<!-- {block}: end -->)", re.DOTALL)
            text = mark.sub(lambda found, content=content: found[1] + content + found[2], text)  # type: ignore[misc]
        if "engine" in record:
            save_figure(performance_figure(record), path.parent / "images", f"performance_{name}")
    path.write_text(text)


if __name__ == "__main__":
    main()
