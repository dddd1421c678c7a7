"""Benchmark records as Markdown tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib import pyplot
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from benchmarks.kernels import ALL
from benchmarks.precision import LEVEL, TESTS
from recombine.panels import COLORS, styled


def performance_blocks(record: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return blocks for a document, each named after its part and the record."""
    blocks = {f"machine_{name}": machine(record)}
    for part, write in WRITERS.items():
        if part in record:
            blocks[f"{part}_{name}"] = write(record[part])
    return blocks


def machine(record: Mapping[str, Any]) -> str:
    """Return a table of device, versions and measured limits."""
    facts = {key: value for key, value in record["provenance"].items() if value is not None}
    rates = [("matrix product, " + kind, rate, "TFLOP/s") for kind, rate in record["limits"].items() if kind != "copy"]
    rates.append(("copy, read and written", record["limits"]["copy"], "TB/s"))
    lines = [(key, str(value)) for key, value in facts.items()]
    lines += [(what, f"{rate / 1e12:.3g} {unit}") for what, rate, unit in rates]
    return table(("", ""), lines)


def engine(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table with one row per case."""
    lines = []
    for row in rows:
        graphed = f"{row['graphed']:.3g}" if row["graphed"] else "–"
        ratio = f"{row['ratio']:.0f}×" if row["ratio"] >= 10 else f"{row['ratio']:.2f}×"
        lines.append((
            row["case"], str(row["members"]), f"{row['plain']:.3g}", f"{row['plain_without_workers']:.3g}", graphed,
            f"{row['ours']:.3g}", f"**{ratio}**", f"{row['rate'] / 1e12:.3g}", percent(row["share"]),
            number(row["floor"], 2), row["bound"], f"{row['gap']:.2g}",
        ))  # fmt: skip
    head = (
        "", "together", "plain loop, s", "without workers, s", "one, graphed, s", "ours, s per model", "faster",
        "TFLOP/s", "of the peak", "floor, s", "bound by", "over the floor",
    )  # fmt: skip
    return table(head, lines)


def kernels(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of step times with and without each kernel."""
    lines = [
        (
            row["case"],
            "any kernel" if row["kernel"] == ALL else row["kernel"],
            f"{1e3 * row['with']:.3g}",
            f"{1e3 * row['without']:.3g}",
            f"**{row['ratio']:.2f}×**",
        )
        for row in rows
    ]
    return table(("", "without", "ms per step with all", "ms per step without", "slower"), lines)


def members(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table by number of members."""
    lines = [
        (
            str(row["value"]),
            f"{row['seconds']:.3g}",
            f"{1e3 * row['step']:.3g}",
            f"{row['peak'] / 2**30:.2g}" if row["peak"] else "–",
        )
        for row in rows
    ]
    return table(("members", "s per model", "ms per step of all", "peak, GiB"), lines)


def growth(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table by size, factors, depth, width and steps."""
    lines = [(row["axis"], str(row["value"]), number(1e6 * row["step"] / row["members"])) for row in rows]
    return table(("", "", "µs per step and model"), lines)


def geometry(times: Mapping[str, float]) -> str:
    """Return a sentence on the time of the metric tensor."""
    return (
        f"The metric tensor of every stage at {times['points']:.0f} points takes {times['metric']:.3g} s, "
        f"{times['passes']:.2g} plain forward passes."
    )


def store(speeds: Mapping[str, float]) -> str:
    """Return a sentence on the speed of the store."""
    rates = ", ".join(f"{name} {rate:.0f}" for name, rate in speeds.items())
    return f"Runs per second through the store, tiny networks trained for one step included: {rates}."


def precision(compared: Mapping[str, Any]) -> str:
    """Return a table of the two-sample tests and their verdicts."""
    rows = []
    for name, result in compared["tests"].items():
        for score, values in result["p"].items():
            ps = [f"{values[test]:.2g}" for test in TESTS]
            verdict = "can be told apart" if result["told_apart"] else "cannot be told apart"
            rows.append((name, score.replace("_", " "), f"{values['shift']:+.3f}", *ps, verdict))
    count = sum(len(result["p"]) for result in list(compared["tests"].values())[:1]) * len(TESTS)
    times = ", ".join(f"{name} {seconds:.3g} s" for name, seconds in compared["seconds"].items())
    lines = table(("", "error", "shift of log10", *(f"p, {test}" for test in TESTS), "from float32"), rows)
    return (
        f"{compared['seeds']} seeds of the {compared['decoder']} recipe in each precision, the same seeds; a model "
        f"takes {times}. Told apart when one of the {count} p-values is below {LEVEL}/{count}. Fastest that cannot be "
        f"told from float32: **{compared['fastest_alike']}**.\n\n{lines}"
    )


def cp(compared: Mapping[str, Any]) -> str:
    """Return a table with one row per method."""
    lines = [
        (row["way"], f"{1e3 * row['seconds']:.3g}", f"{row['error']:.4f}", f"**{row['ratio']:.3g}×**" if place else "1")
        for place, row in enumerate(compared["rows"])
    ]
    grid = "×".join(str(size) for size in compared["shape"])
    what = (
        f"{compared['problems']} outputs over a grid of {grid}, rank {compared['rank']}, {compared['restarts']} starts "
        f"each, {compared['threads']} threads; loops timed on {compared['sample']} of them."
    )
    return what + "\n\n" + table(("", "ms per output", "mean relative error", "slower"), lines)


def number(value: float, digits: int = 3) -> str:
    """Format a number with some significant digits, without an exponent for large ones."""
    short = f"{value:.{digits}g}"
    return f"{float(short):.0f}" if "e+" in short else short


def percent(share: float) -> str:
    """Format a share as a percentage, with two digits or as an integer."""
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


WRITERS: dict[str, Callable[[Any], str]] = {
    "engine": engine, "kernels": kernels, "members": members, "growth": growth, "geometry": geometry, "store": store,
    "precision": precision, "cp": cp,
}  # fmt: skip


def performance_figure(record: Mapping[str, Any]) -> Figure:
    """Draw seconds per model by case, and by number of members if that was measured."""
    rows, counts = record["engine"], record.get("members", [])
    with styled():
        figure, axes = pyplot.subplots(
            1, 2 if counts else 1, figsize=(9.6 if counts else 6, 0.42 * len(rows) + 1.4), squeeze=False,
            layout="constrained", width_ratios=[1.6, 1] if counts else [1],
        )  # fmt: skip
        ax = axes[0, 0]
        marks = (("plain", "plain loop", "o"), ("graphed", "one network, graphed", "s"), ("ours", "ours", "D"))
        for (name, label, marker), color in zip((*marks, ("floor", "floor", "|")), COLORS, strict=False):
            known = [(row[name], at) for at, row in enumerate(rows) if row[name]]
            if known:
                ax.plot(*zip(*known, strict=True), marker, color=color, label=label, linestyle="none", markersize=6)
        for at, row in enumerate(rows):
            ax.plot([row["ours"], row["plain"]], [at, at], color="0.85", zorder=0)
            ax.annotate(
                f"{row['ratio']:.0f}×" if row["ratio"] >= 10 else f"{row['ratio']:.1f}×", (row["plain"], at),
                textcoords="offset points", xytext=(8, -3), fontsize=8,
            )  # fmt: skip
        ax.set_yticks(range(len(rows)), [row["case"] for row in rows])
        ax.invert_yaxis()
        ax.set_xscale("log")
        ax.margins(x=0.15)
        ax.set_xlabel("seconds per model")
        ax.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=4, fontsize=8)
        if counts:
            ax = axes[0, 1]
            values, seconds = [row["value"] for row in counts], [row["seconds"] for row in counts]
            ax.loglog(values, seconds, "o-", color=COLORS[2])
            ax.set_xticks(values, [str(value) for value in values], minor=False)
            ax.set_xticks([], minor=True)
            ax.set_ylim(min(seconds) / 1.5, max(seconds) * 1.5)  # keep noise from filling the panel
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_major_formatter("{x:g}")
            ax.yaxis.set_minor_formatter(NullFormatter())
            ax.set_xlabel("members that train together")
            ax.set_ylabel("seconds per model")
            ax.set_title("CNN depth 4")
    return figure
