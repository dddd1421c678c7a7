"""CP decompositions of many outputs at once, compared with one output at a time: a plain loop, and tensorly's.

All methods get the same problems (planted sums with noise) and the same number of starts, of which they keep the best.
The loops are timed on a sample. Both use alternating least squares with tensorly's default limits; the plain one
needs no library. Errors are reported too, since a method that stops early is fast.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from typing import Any

import numpy as np
import torch

from recombine.theory.ranks import cp_decomposition

ITERATIONS, TOLERANCE = 100, 1e-8
"""Maximum number of sweeps, and the smallest gain in relative error per sweep: tensorly's defaults."""
NOISE = 0.1
"""Relative to the standard deviation of the sums."""
MISSING = "tensorly: not installed, so not timed (pip install tensorly)"
Way = Callable[[np.ndarray, int, int], tuple[list[np.ndarray], np.ndarray]]
"""Maps a grid of values, a rank and the index of the start to functions of each factor and weights."""


@dataclass(frozen=True)
class Workload:
    """Problems to decompose: every output of every member over a grid of three factors."""

    outputs: int = 784
    members: int = 32
    shape: tuple[int, ...] = (10, 10, 8)
    rank: int = 3
    restarts: int = 1
    sample: int = 64
    """Number of problems that a loop is timed on."""

    def values(self) -> torch.Tensor:
        """Return planted sums of `rank` products with noise, `[member, output, point]`."""
        generator = torch.Generator().manual_seed(0)
        lead = (self.members, self.outputs)
        drawn = [torch.randn(*lead, size, self.rank, generator=generator, dtype=torch.float64) for size in self.shape]
        values = reduce(lambda a, b: (a[..., :, None, :] * b[..., None, :, :]).flatten(-3, -2), drawn).sum(dim=-1)
        noise = torch.randn(values.shape, generator=generator, dtype=torch.float64)
        return values + NOISE * values.std(dim=-1, keepdim=True) * noise


def compare_decompositions(
    device: torch.device, say: Callable[[str], None] = lambda line: None, workload: Workload | None = None
) -> dict[str, Any]:
    """Time every method, and return seconds per output and errors.

    Parameters
    ----------
    device
        Device of our decomposition; loops run on the CPU.
    say
        Called with a line for every result.
    workload
        Problems to decompose.

    Returns
    -------
    The workload, and `rows` of `way`, `seconds` per output, `error` and `ratio` to ours.
    """
    workload = workload or Workload()
    values = workload.values()
    sample = values.flatten(0, 1)[: workload.sample]
    seconds, error = _ours(values.to(device), workload)
    rows: list[dict[str, Any]] = [{"way": "ours, all at once", "seconds": seconds, "error": error, "ratio": 1.0}]
    for name, way in _loops():
        seconds, error = _one_by_one(way, sample.numpy(), workload)
        rows.append({"way": name, "seconds": seconds, "error": error, "ratio": seconds / rows[0]["seconds"]})
    for row in rows:
        times = f"{1e3 * row['seconds']:.3g} ms per output, {row['ratio']:.3g} times ours"
        say(f"{row['way']}: {times}, error {row['error']:.5f}")
    if len(rows) < 3:
        say(MISSING)
    return {
        "problems": workload.outputs * workload.members, "shape": list(workload.shape), "rank": workload.rank,
        "restarts": workload.restarts, "sample": len(sample), "threads": torch.get_num_threads(), "rows": rows,
    }  # fmt: skip


def _loops() -> Iterator[tuple[str, Way]]:
    yield "plain loop (NumPy)", plain_loop
    try:
        library = import_module("tensorly")
        decomposition = import_module("tensorly.decomposition")
    except ImportError:
        return
    yield f"tensorly {library.__version__} in a loop", tensorly_way(decomposition.parafac)


def _ours(values: torch.Tensor, workload: Workload) -> tuple[float, float]:
    cp_decomposition(
        values[:1, :2], workload.shape, workload.rank, restarts=1
    )  # warm-up: libraries load on the first call
    began = time.perf_counter()
    solved = cp_decomposition(values, workload.shape, workload.rank, restarts=workload.restarts)
    errors = solved.error.flatten()[: workload.sample].tolist()  # waits for the device
    return (time.perf_counter() - began) / solved.error.numel(), float(np.mean(errors))


def _one_by_one(way: Way, problems: np.ndarray, workload: Workload) -> tuple[float, float]:
    grids = problems.reshape(-1, *workload.shape)
    way(grids[0], workload.rank, 0)
    began = time.perf_counter()
    solved = [[way(grid, workload.rank, start) for start in range(workload.restarts)] for grid in grids]
    seconds = (time.perf_counter() - began) / len(grids)
    errors = [min(_error(grid, *one) for one in starts) for grid, starts in zip(grids, solved, strict=True)]
    return seconds, float(np.mean(errors))


def _error(grid: np.ndarray, functions: list[np.ndarray], weights: np.ndarray) -> float:
    """Return the norm of the residual relative to that of the values."""
    products = reduce(_khatri_rao, functions)
    return float(np.linalg.norm(grid.ravel() - products @ weights) / np.linalg.norm(grid))


def _khatri_rao(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return (one[:, None, :] * other[None, :, :]).reshape(-1, one.shape[1])


def tensorly_way(parafac: Callable[..., Any]) -> Way:
    """Wrap tensorly's alternating least squares: the first start is from singular vectors, others are random."""

    def way(grid: np.ndarray, rank: int, start: int) -> tuple[list[np.ndarray], np.ndarray]:
        weights, functions = parafac(
            grid, rank, n_iter_max=ITERATIONS, tol=TOLERANCE, init="random" if start else "svd", random_state=start
        )
        return [np.asarray(own) for own in functions], np.asarray(weights)

    return way


def plain_loop(grid: np.ndarray, rank: int, start: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Alternating least squares in a few lines of NumPy: each factor in turn, with the others fixed."""
    unfolded = [np.moveaxis(grid, axis, 0).reshape(size, -1) for axis, size in enumerate(grid.shape)]
    generator = np.random.default_rng(start)
    functions = [
        generator.random((len(own), rank)) if start else np.linalg.svd(own, full_matrices=False)[0][:, :rank]
        for own in unfolded
    ]
    norm, before = np.linalg.norm(grid), np.inf
    for _ in range(ITERATIONS):
        for axis, own in enumerate(unfolded):
            rest = functions[:axis] + functions[axis + 1 :]
            gram = reduce(np.multiply, [other.T @ other for other in rest])
            seen = own @ reduce(_khatri_rao, rest)
            functions[axis] = np.linalg.solve(gram, seen.T).T
        fitted = reduce(np.multiply, [other.T @ other for other in functions]).sum()
        error = np.sqrt(abs(norm**2 + fitted - 2 * (seen * functions[-1]).sum())) / norm
        if before - error < TOLERANCE:
            break
        before = error
    return functions, np.ones(rank)
