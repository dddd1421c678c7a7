"""Local geometry of a stage: metric tensor, volume element, factorization (Eq. 5–7, 38–42).

Conventions
-----------
Let f(z) be a stage's activation as a function of the factor values z, through the encoding. J = ∂f/∂z has a column a
factor and g = JᵀJ. Factor values are in their own units (pixels for x and y).

- `metric_tensor` is exact, by forward-mode differentiation: n tangents for n factors, never a row a feature.
- `finite_difference_metric` is the published scripts' convention: central differences of the activations on the grid,
  one-sided at its ends; the only one possible for one-hot codes.
- `volume_element` is √det g; `local_factorization` is 1 − |g_xy| / (|g_xx| + |g_yy|), in [½, 1]; for n factors the mean
  over all pairs. It is averaged over points (the paper) or taken of the averaged g (the scripts).

Known answers: an ideal bump of σ = 1 far from the border has g = (π/2) I by derivatives and (π/2)(1 − e⁻¹) I = 0.993 I
by differences over one pixel, 37 % less.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import jvp, vmap

from recombine.checks import checked, grid_shape, whole_number
from recombine.errors import InvalidValue
from recombine.metrics.stages import INPUT, MEMORY, Reader, chunks, flat, sampled, stage_sizes

Averaging = Literal["points", "means"]
COPIES = 4
"""Room for what a layer needs beside its input and output."""


@checked
def metric_tensor(
    reader: Reader,
    points: Float[Tensor, "point factor"],
    *,
    members: int = 0,
    memory: int = MEMORY,
    repeated: bool = False,
) -> dict[str, Float[Tensor, "... point factor factor"]]:
    """Every stage's exact metric tensor at every point.

    The network runs once, with one tangent a factor carried along by `vmap`; products of tangents are all that is kept.
    `repeated` runs every point once a factor instead, in a plain batch: slower, and good for modules that do not stand
    being batched over tangents.
    """
    whole_number("memory", memory)
    factors = points.shape[1]
    sizes = stage_sizes(reader, points, members)
    size = memory // (4 * (factors + 1) * COPIES * sum(sizes.values()))
    push = _repeated_tangents if repeated else _carried_tangents
    found: dict[str, list[Tensor]] = {}
    with torch.no_grad():
        for part in chunks(points, size):
            for name, product in push(reader, part, members).items():
                found.setdefault(name, []).append(product)
    metrics = {name: torch.cat(parts, dim=members) for name, parts in found.items()}
    if INPUT in metrics and not bool(metrics[INPUT].any()):
        raise InvalidValue(
            "encoding", "constant", "a code with a derivative; one-hot codes have finite differences only"
        )
    return metrics


def _carried_tangents(reader: Reader, points: Tensor, members: int) -> dict[str, Tensor]:
    """JᵀJ of every stage, all tangents in one pass."""

    def stages(values: Tensor) -> dict[str, Tensor]:
        kept: dict[str, Tensor] = {}

        def tap(name: str, activation: Tensor) -> None:
            kept[name] = activation.clone()  # a layer behind this one may work in place

        reader(values, tap)
        return kept

    factors = points.shape[1]
    tangents = _unit_tangents(points)[:, None, :].expand(factors, *points.shape)
    columns = vmap(lambda tangent: jvp(stages, (points,), (tangent,))[1])(tangents)
    jacobians = {name: flat(column, members + 1).movedim(0, -1) for name, column in columns.items()}
    return {name: jacobian.mT @ jacobian for name, jacobian in jacobians.items()}


def _repeated_tangents(reader: Reader, points: Tensor, members: int) -> dict[str, Tensor]:
    """JᵀJ of every stage, each point run once a factor with that factor's tangent."""
    products: dict[str, Tensor] = {}

    def keep(name: str, jacobian: Tensor) -> None:
        products[name] = jacobian.mT @ jacobian

    _push_repeated(reader, points, members, keep)
    return products


def stage_jacobians(reader: Reader, points: Float[Tensor, "point factor"]) -> dict[str, Tensor]:
    """Every stage's `(point, feature, factor)` derivative by the factors; for a few points, of sampled features."""
    jacobians: dict[str, Tensor] = {}

    def keep(name: str, jacobian: Tensor) -> None:
        jacobians[name] = sampled(jacobian.mT).mT.clone()

    with torch.no_grad():
        _push_repeated(reader, points, 0, keep)
    return jacobians


def _push_repeated(reader: Reader, points: Tensor, members: int, keep: Callable[[str, Tensor], None]) -> None:
    """Hand each stage's Jacobian on as it is computed."""
    factors = points.shape[1]

    def tap(name: str, activation: Tensor) -> None:
        tangent = forward_ad.unpack_dual(activation).tangent
        if tangent is None:
            tangent = torch.zeros_like(activation)
        keep(name, flat(tangent, members).unflatten(members, (factors, -1)).movedim(members, -1))

    with forward_ad.dual_level():
        tangents = _unit_tangents(points).repeat_interleave(len(points), dim=0)
        reader(forward_ad.make_dual(points.repeat(factors, 1), tangents), tap)


def _unit_tangents(points: Tensor) -> Tensor:
    return torch.eye(points.shape[1], dtype=points.dtype, device=points.device)


@checked
def finite_difference_metric(
    activations: Float[Tensor, "... point feature"], shape: tuple[int, ...], spacing: tuple[float, ...] | None = None
) -> Float[Tensor, "... point factor factor"]:
    """The metric tensor by differences between neighbouring grid points (`points` in the grid's order)."""
    shape = grid_shape(shape, activations.shape[-2])
    spacing = spacing or (1.0,) * len(shape)
    if len(spacing) != len(shape) or min(spacing) <= 0:
        raise InvalidValue("spacing", spacing, f"{len(shape)} numbers above 0, one for each factor")
    if min(shape) < 2:
        raise InvalidValue("grid", shape, "at least 2 values a factor, for differences")
    lead = activations.ndim - 2
    grid = activations.unflatten(lead, shape)
    columns = [
        torch.gradient(grid, spacing=step, dim=lead + axis)[0].flatten(lead, lead + len(shape) - 1)
        for axis, step in enumerate(spacing)
    ]
    jacobian = torch.stack(columns, dim=-1)
    return jacobian.mT @ jacobian


@checked
def volume_element(metric: Float[Tensor, "*point factor factor"]) -> Float[Tensor, "*point"]:
    """√det g (Eq. 6, 39): how much a unit cell of factor space is blown up."""
    return torch.linalg.det(metric.double()).clamp(min=0).sqrt()


@checked
def local_factorization(metric: Float[Tensor, "*point factor factor"]) -> Float[Tensor, "*point"]:
    """1 − |g_ab| / (|g_aa| + |g_bb|) at each point (Eq. 7, 42), averaged over pairs of factors.

    A pair of factors that both leave the stage unmoved is left out; NaN where all pairs are.
    """
    return _mean_over_pairs(metric.double().abs())


@checked
def mean_factorization(
    metric: Float[Tensor, "*member point factor factor"], averaging: Averaging = "points"
) -> Float[Tensor, "*member"]:
    """One number a stage: the mean of the points' factorization (the paper), or that of the mean |g| (the scripts)."""
    if averaging == "points":
        return local_factorization(metric).nanmean(dim=-1)
    return _mean_over_pairs(metric.double().abs().mean(dim=-3))


def _mean_over_pairs(metric: Tensor) -> Tensor:
    factors = metric.shape[-1]
    if factors < 2:
        raise InvalidValue("factors", factors, "at least 2, for their factorization")
    pairs = [
        1 - metric[..., a, b] / (metric[..., a, a] + metric[..., b, b]) for a, b in combinations(range(factors), 2)
    ]
    return torch.stack(pairs).nanmean(dim=0)
