"""Which precisions are indistinguishable from strict float32: two-sample tests of errors after whole trainings."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy import stats

from recombine.specs import Recipe, RunSpec
from recombine.sweep import train
from recombine.tasks import BumpTask

SEEDS = 32
SCORES = ("id_mse", "ood_mse")
LEVEL = 0.05
"""Significance level, divided by the number of scores and tests (Bonferroni)."""
TESTS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "Kolmogorov–Smirnov": lambda a, b: float(stats.ks_2samp(a, b).pvalue),
    "Mann–Whitney": lambda a, b: float(stats.mannwhitneyu(a, b).pvalue),
    "Ansari–Bradley": lambda a, b: float(stats.ansari(a - np.median(a), b - np.median(b)).pvalue),
}
"""Tests of the distribution, location and scale of log10 errors."""


def compare_precisions(
    device: torch.device, say: Callable[[str], None] = lambda line: None, *, seeds: int = SEEDS,
    base: RunSpec | None = None, precisions: tuple[str, ...] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Train `seeds` networks in every precision and compare their errors with float32's."""
    base = base or RunSpec(task=BumpTask(size=28, training="draws:2000"), recipe=Recipe(epochs=50))
    precisions = precisions or (("tf32", "bf16") if device.type == "cuda" else ("bf16",))
    errors: dict[str, dict[str, list[float]]] = {}
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        for precision in ("float32", *precisions):
            recipe = base.recipe.replace(precision=precision)
            runs = train(base.replace(recipe=recipe).seeds(range(seeds)), folder, device=device.type, progress=False)
            kept = [run for run in runs if run.status == "done"]
            errors[precision] = {score: [_number(run.scores[score]) for run in kept] for score in SCORES}
            first = runs[0].result["provenance"]
            seconds[precision] = first["seconds"] / first["members_together"]
            say(f"{precision}: {len(kept)} of {seeds} trained, {seconds[precision]:.3g} s per model")
    results = {precision: told_apart(errors["float32"], errors[precision]) for precision in precisions}
    for precision, result in results.items():
        verdict = "can be told from float32" if result["told_apart"] else "cannot be told from float32"
        say(f"{precision}: {verdict} (smallest p {result['smallest']:.3g})")
    alike = ["float32", *(name for name, result in results.items() if not result["told_apart"])]
    return {
        "decoder": str(base.decoder.kind), "seeds": seeds, "seconds": seconds, "errors": errors, "tests": results,
        "fastest_alike": min(alike, key=lambda name: seconds[name]),
    }  # fmt: skip


def _number(score: float | None) -> float:
    return float("nan") if score is None else float(score)


def told_apart(reference: dict[str, list[float]], other: dict[str, list[float]]) -> dict[str, Any]:
    """Return the p-values of all tests and scores, and whether any is significant after correction.

    Networks lost to divergence or NaN errors count as a difference too.
    """
    values: dict[str, dict[str, float]] = {}
    for score in SCORES:
        one, two = (np.log10(np.asarray(scores[score], dtype=float)) for scores in (reference, other))
        comparable = len(one) == len(two) and bool(np.isfinite(one).all() and np.isfinite(two).all())
        values[score] = {name: test(one, two) if comparable else 0.0 for name, test in TESTS.items()}
        values[score]["shift"] = float(np.mean(two) - np.mean(one)) if comparable else float("nan")
    tried = [p for score in values.values() for name, p in score.items() if name in TESTS]
    return {"p": values, "smallest": min(tried), "told_apart": bool(min(tried) < LEVEL / len(tried))}
