"""The metric tensor of a stage: how far activations move when a factor does (Eq. 5, 36–38, 40).

Conventions
-----------
Let f(z) be a stage's activation as a function of the factor values z, through the encoding. J = ∂f/∂z has one column
per factor and g = JᵀJ. Factor values are in their own units (pixels for x and y).

- `metric_tensor` is exact, by forward-mode differentiation: n tangents for n factors, never one row per feature.
- `finite_difference_metric` is the published scripts' convention: central differences of the activations on the grid,
  one-sided at its ends; the only one possible for one-hot codes.
- `neighbour_metric` is the same at some points of a grid alone: their neighbours are run with them.

Known answers: an ideal bump of σ = 1 far from the border has g = (π/2) I by derivatives and (π/2)(1 − e⁻¹) I = 0.993 I
by differences over one pixel, 37 % less.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import jvp, vmap

from recombine.errors import InvalidValue
from recombine.factors import FactorGrid
from recombine.metrics.sampling import points_at, steps_at
from recombine.metrics.stages import INPUT, MEMORY, Reader, chunks, flat, precision, sampled, stage_sizes, tapped

COPIES = 4
"""Copies of a stage that a layer may need beside its input and output."""


def metric_tensor(
    reader: Reader,
    points: Float[Tensor, "point factor"],
    *,
    members: int = 0,
    memory: int = MEMORY,
    repeated: bool = False,
) -> dict[str, Float[Tensor, "... point factor factor"]]:
    """Every stage's exact metric tensor `(*member, point, factor, factor)` at every point, by the stage's name.

    The network runs once, with one tangent per factor carried along by `vmap`; only products of tangents are kept.
    `repeated` runs every point once per factor in a plain batch instead: slower, but possible for modules that cannot
    be batched over tangents. Other arguments are those of `recombine.metrics.features`.

    >>> doubled = lambda values, tap: tap("output", 2 * values)
    >>> metric_tensor(doubled, torch.zeros(1, 2))["output"].tolist()
    [[[4.0, 0.0], [0.0, 4.0]]]
    """
    factors = points.shape[1]
    sizes = stage_sizes(reader, points, members)
    size = memory // (4 * (factors + 1) * COPIES * sum(sizes.values()))
    with torch.no_grad():
        metrics = _joined(
            [
                _jacobians(reader, part, members, _product) if repeated else _carried_products(reader, part, members)
                for part in chunks(points, size)
            ],
            members,
        )
    if INPUT in metrics and not bool(metrics[INPUT].any()):
        raise InvalidValue("encoding", "a constant one", "differentiable; one-hot codes have finite differences only")
    return metrics


def _joined(parts: Sequence[Mapping[str, Tensor]], axis: int) -> dict[str, Tensor]:
    """Every stage's tensor of all parts of the points."""
    return {name: torch.cat([part[name] for part in parts], dim=axis) for name in parts[0]}


def _product(jacobian: Tensor) -> Tensor:
    return jacobian.mT @ jacobian


def _carried_products(reader: Reader, points: Tensor, members: int) -> dict[str, Tensor]:
    """JᵀJ of every stage, all tangents in one pass."""

    def stages(values: Tensor) -> dict[str, Tensor]:
        return tapped(reader, values, Tensor.clone)  # a layer behind a stage may work in place

    tangents = _unit_tangents(points)[:, None, :].expand(points.shape[1], *points.shape)
    columns = vmap(lambda tangent: jvp(stages, (points,), (tangent,))[1])(tangents)
    return {name: _product(flat(column, members + 1).movedim(0, -1)) for name, column in columns.items()}


def stage_jacobians(reader: Reader, points: Float[Tensor, "point factor"]) -> dict[str, Tensor]:
    """Every stage's `(point, feature, factor)` derivative by the factors; for a few points, of sampled features."""
    with torch.no_grad():
        return _jacobians(reader, points, 0, lambda jacobian: sampled(jacobian.mT).mT.clone())


def _jacobians(reader: Reader, points: Tensor, members: int, keep: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """What is kept of every stage's Jacobian, each point run once per factor with that factor's tangent."""
    factors = points.shape[1]

    def kept(activation: Tensor) -> Tensor:
        tangent = forward_ad.unpack_dual(activation).tangent
        if tangent is None:
            tangent = torch.zeros_like(activation)
        return keep(flat(tangent, members).unflatten(members, (factors, -1)).movedim(members, -1))

    with forward_ad.dual_level():
        tangents = _unit_tangents(points).repeat_interleave(len(points), dim=0)
        return tapped(reader, forward_ad.make_dual(points.repeat(factors, 1), tangents), kept)


def _unit_tangents(points: Tensor) -> Tensor:
    return torch.eye(points.shape[1], dtype=points.dtype, device=points.device)


def finite_difference_metric(
    activations: Float[Tensor, "... point feature"], shape: tuple[int, ...], spacing: tuple[float, ...] | None = None
) -> Float[Tensor, "... point factor factor"]:
    """The metric tensor by differences between neighbouring grid points, `(*member, point, factor, factor)`.

    Each factor has at least 2 values; their spacing is 1 by default.

    >>> line = torch.arange(3.0)[:, None]
    >>> finite_difference_metric(line, (3,), (0.5,)).flatten().tolist()
    [4.0, 4.0, 4.0]
    """
    if min(shape) < 2:
        raise InvalidValue("shape", shape, "at least 2 values per factor, for differences")
    spacing = spacing or (1.0,) * len(shape)
    lead = activations.ndim - 2
    grid = activations.unflatten(lead, shape)
    columns = [
        torch.gradient(grid, spacing=step, dim=lead + axis)[0].flatten(lead, lead + len(shape) - 1)
        for axis, step in zip(range(len(shape)), spacing, strict=True)
    ]
    return _product(torch.stack(columns, dim=-1))


def neighbour_metric(
    reader: Reader, grid: FactorGrid, indices: Int[Tensor, " point"], device: torch.device, *, memory: int = MEMORY
) -> dict[str, Float[Tensor, "point factor factor"]]:
    """Every stage's metric tensor by differences, at some points of a grid: their neighbours along each factor are run.

    As `finite_difference_metric` has at these points, for a reader without member axes.

    >>> from recombine.factors import Factor
    >>> grid = FactorGrid((Factor("x", 0, 4, 9),))
    >>> doubled = lambda values, tap: tap("output", 2 * values)
    >>> neighbour_metric(doubled, grid, torch.tensor([0, 5]), torch.device("cpu"))["output"].flatten().tolist()
    [4.0, 4.0]
    """
    if min(grid.shape) < 2:
        raise InvalidValue("grid", grid.shape, "at least 2 values per factor, for differences")
    factors, steps, points = len(grid.shape), steps_at(grid, indices), points_at(grid, indices)
    dtype = precision(device)
    sizes = stage_sizes(reader, points[:1].to(device, dtype).clone())
    size = max(1, memory // (4 * (2 * factors + COPIES) * sum(sizes.values())))
    parts = []
    for here, at in zip(points.split(size), steps.split(size), strict=True):
        beside, apart = _neighbours(here, at, grid)
        with torch.no_grad():
            parts.append(_difference_products(reader, beside.to(device, dtype).clone(), apart.to(device, dtype)))
    return _joined(parts, 0)


def _difference_products(reader: Reader, beside: Tensor, apart: Float[Tensor, "factor point"]) -> dict[str, Tensor]:
    """JᵀJ of every stage, J by differences between points ahead and points behind."""

    def kept(activation: Tensor) -> Tensor:
        ahead, behind = flat(activation).unflatten(0, (2, len(apart), -1)).unbind(0)
        return _product(((ahead - behind) / apart[..., None].to(ahead.dtype)).movedim(0, -1))

    return tapped(reader, beside, kept)


def _neighbours(points: Tensor, steps: Tensor, grid: FactorGrid) -> tuple[Tensor, Tensor]:
    """Points one step ahead along each factor, then those one step behind, and how far they are apart."""
    sides, values = [], []
    for direction in (1, -1):
        for k, factor in enumerate(grid.factors):
            moved = points.clone()
            moved[:, k] = factor.values[(steps[:, k] + direction).clamp(0, factor.count - 1)]
            sides.append(moved)
            values.append(moved[:, k])
    ahead, behind = torch.stack(values).unflatten(0, (2, -1)).unbind(0)
    return torch.cat(sides), ahead - behind
