"""Activations, Jacobians and metric tensors of a network's stages (Eq. 5, 21–22, 36–38, 40), within a memory budget.

A *reader* runs a network on rows of factor values and passes each stage's activation to a *tap* as soon as it is
computed: `reader(values, tap)`, `tap(name, activation)`. Activations are `(*member, point, …)`, with `members` leading
member axes. A tap must use or copy an activation immediately, because a later in-place operation may overwrite it. Each
row's activations must depend on that row alone (no batch statistics).

Let f(z) be a stage's activation as a function of the factor values z, through the encoding. J = ∂f/∂z has one column
per factor and g = JᵀJ. `metric_tensor` is exact and uses forward-mode differentiation. `finite_difference_metric`
follows the published scripts, with central differences on the grid and one-sided ones at its ends; it is the only
option for one-hot codes. `neighbour_metric` computes the same at selected points by evaluating their neighbours.

A stage that holds one image per factor value (a rendered embedding of one-hot codes) has a free sign per image: a later
layer can undo it, but a finite difference between two values jumps. `sign_aligned` aligns the signs of that stage
alone. Later stages still read the images as trained, since an aligned network is not the same function.

Known answers: an ideal bump of σ = 1 far from the border has g = (π/2) I from derivatives, but 37 % less, (π/2)(1 −
e⁻¹) I = 0.993 I, from differences over one pixel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call, jvp, vmap

from recombine.errors import InvalidValue
from recombine.factors import FactorGrid

Tap = Callable[[str, Tensor], None]
Reader = Callable[[Tensor, Tap], None]
Encode = Callable[[Tensor], Tensor]
T = TypeVar("T")

MEMORY = 1 << 30
"""Default memory budget for a metric, in bytes."""
FEWEST = 2
"""Smallest batch size, since many modules drop the batch dimension of a single row."""
SAMPLED = 1 << 14
"""Maximum number of features per stage used in checks."""
COPIES = 4
"""Number of copies of a stage that a layer may allocate in addition to its input and output."""
INPUT = "input"
"""Name of the stage for the network's input (the code)."""


class _Walk(nn.Module):
    """Wrapper whose `forward` returns all stages of a decoder, because `functional_call` can only call `forward`."""

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        return dict(self.decoder.walk(inputs))  # type: ignore[operator]


def ensemble_reader(decoder: nn.Module, weights: Mapping[str, Tensor], encode: Encode) -> Reader:
    """Return a reader for all members of an ensemble at once.

    The stages are `input` (the encoded factor values) and those of the decoder, with one member axis. Weights have the
    names of the decoder's parameters, each with a leading member axis.
    """
    walk = _Walk(decoder)
    stacked = {f"decoder.{name}": weight for name, weight in weights.items()}
    members = len(next(iter(weights.values())))

    def read(values: Tensor, tap: Tap) -> None:
        inputs = encode(values)
        tap(INPUT, inputs.expand(members, *inputs.shape))
        for name, activation in over_members(walk, stacked, inputs).items():
            tap(name, activation)

    return read


def over_members(module: nn.Module, weights: Mapping[str, Tensor], inputs: Tensor) -> Any:
    """Return a module's outputs (a tensor or dict of tensors) for each member's weights, with a leading member axis."""
    if len(next(iter(weights.values()))) > 1:
        return vmap(lambda member: functional_call(module, member, (inputs,)))(dict(weights))
    # a single member runs without `vmap`, which costs time and forbids in-place operations
    alone = functional_call(module, {name: weight[0] for name, weight in weights.items()}, (inputs,))
    return alone[None] if isinstance(alone, Tensor) else {name: activation[None] for name, activation in alone.items()}


def aligned_signs(images: Float[Tensor, "*shape value feature"]) -> Float[Tensor, "*shape value"]:
    """Return ±1 for each value, so that the images of neighbouring values, times their signs, correlate positively.

    The first sign is 1. The inner product decides, so that neighbours are as close to each other as they can be.

    >>> aligned_signs(torch.tensor([[1.0, 0.0], [-2.0, 1.0], [-1.0, 3.0], [1.0, -2.0]])).tolist()
    [1.0, -1.0, -1.0, 1.0]
    """
    products = (images[..., 1:, :] * images[..., :-1, :]).sum(dim=-1)
    signs = torch.ones_like(images[..., 0])
    signs[..., 1:] = torch.where(products < 0, -1.0, 1.0).cumprod(dim=-1)
    return signs


def sign_aligned(reader: Reader, stage: str, grid: FactorGrid, device: torch.device, *, members: int = 0) -> Reader:
    """Return a reader in which the images of one stage are aligned in sign along every factor.

    The stage is `(*member, point, plane, y, x)` with as many planes per factor, each a function of that factor alone.
    """
    values = [factor.values.to(device) for factor in grid.factors]
    signs = []  # by factor, `[*member, plane of the factor, value]`
    for k, factor in enumerate(grid.factors):
        line = grid.points[:1].repeat(factor.count, 1)
        line[:, k] = factor.values
        with torch.no_grad():
            images = tapped(reader, line.to(device), Tensor.clone)[stage]
        planes = images.unflatten(members + 1, (len(values), -1)).select(members + 1, k)
        signs.append(aligned_signs(planes.movedim(members + 1, members).flatten(members + 2)))

    def read(points: Tensor, tap: Tap) -> None:
        nearest = [(points[:, k, None] - own).abs().argmin(dim=1) for k, own in enumerate(values)]

        def aligned(name: str, activation: Tensor) -> None:
            if name == stage:
                sign = torch.cat([own[..., rows] for own, rows in zip(signs, nearest, strict=True)], dim=members)
                activation = activation * sign.movedim(members, members + 1)[..., None, None]
            tap(name, activation)

        reader(points, aligned)

    return read


def precision(device: torch.device) -> torch.dtype:
    """Return the most precise floating-point type that a device supports."""
    return torch.float32 if device.type == "mps" else torch.float64


def flat(activation: Tensor, members: int = 0) -> Tensor:
    """Reshape an activation to `(*member, point, feature)`, in float32 or float64."""
    whole = activation if activation.dtype in (torch.float32, torch.float64) else activation.float()
    return whole.reshape(*whole.shape[: members + 1], -1)


def sampled(stage: Tensor) -> Tensor:
    """Return about `SAMPLED` evenly spaced features of a `(…, feature)` stage, or all if there are fewer."""
    return stage[..., :: max(1, stage.shape[-1] // SAMPLED)]


def chunks(points: Tensor, size: int) -> Sequence[Tensor]:
    """Split points into chunks of about equal length, with at most `size` but at least two points each."""
    return points.tensor_split(max(1, min(-(-len(points) // max(1, size)), len(points) // FEWEST)))


def tapped(reader: Reader, values: Tensor, keep: Callable[[Tensor], T]) -> dict[str, T]:
    """Return `keep(activation)` for every stage, by stage name."""
    kept: dict[str, T] = {}

    def tap(name: str, activation: Tensor) -> None:
        kept[name] = keep(activation)

    reader(values, tap)
    return kept


def stage_sizes(reader: Reader, points: Float[Tensor, "point factor"], members: int = 0) -> dict[str, int]:
    """Return each stage's number of activations per point, summed over members.

    >>> stage_sizes(lambda values, tap: tap("output", values), torch.zeros(5, 2))
    {'output': 2}
    """
    with torch.no_grad():
        return tapped(reader, points[:FEWEST], lambda activation: activation.numel() // activation.shape[members])


def features(
    reader: Reader, points: Float[Tensor, "point factor"], *, members: int = 0, memory: int = MEMORY
) -> Iterator[tuple[str, Tensor]]:
    """Yield each stage's name and `(*member, point, feature)` activations.

    Half of the memory budget is for activations: as many stages as fit (at least one) are stored at a time, and the
    network is rerun for the others. The other half limits the batch size. `members` is the number of leading member
    axes.
    """
    sizes = stage_sizes(reader, points, members)
    size = memory // 2 // (4 * sum(sizes.values()))
    for group in _groups(sizes, memory // 2 // (4 * len(points))):
        kept: dict[str, list[Tensor]] = {name: [] for name in group}

        def tap(name: str, activation: Tensor, kept: dict[str, list[Tensor]] = kept) -> None:
            if name in kept:
                kept[name].append(flat(activation.detach(), members).clone())

        with torch.no_grad():
            for part in chunks(points, size):
                reader(part, tap)
        for name in group:
            yield name, torch.cat(kept.pop(name), dim=members)


def _groups(sizes: Mapping[str, int], capacity: int) -> Iterator[list[str]]:
    """Group consecutive stages so that each group fits into the memory budget."""
    group: list[str] = []
    for name, size in sizes.items():
        if group and sum(sizes[other] for other in group) + size > capacity:
            yield group
            group = []
        group.append(name)
    if group:
        yield group


def metric_tensor(
    reader: Reader,
    points: Float[Tensor, "point factor"],
    *,
    members: int = 0,
    memory: int = MEMORY,
    repeated: bool = False,
) -> dict[str, Float[Tensor, "... point factor factor"]]:
    """Return the exact metric tensor `(*member, point, factor, factor)` of every stage, by stage name.

    The network runs once with one tangent per factor, batched by `vmap`; only products of tangents are kept. `repeated`
    instead runs every point once per factor in a plain batch, which is slower but works for modules that `vmap` cannot
    batch. For the other arguments, see `recombine.metrics.features`.

    >>> doubled = lambda values, tap: tap("output", 2 * values)
    >>> metric_tensor(doubled, torch.zeros(1, 2))["output"].tolist()
    [[[4.0, 0.0], [0.0, 4.0]]]
    """
    factors = points.shape[1]
    sizes = stage_sizes(reader, points, members)
    size = memory // (4 * (factors + 1) * COPIES * sum(sizes.values()))
    with torch.no_grad():
        parts = [
            _jacobians(reader, part, members, _product) if repeated else _batched_products(reader, part, members)
            for part in chunks(points, size)
        ]
    metrics = _joined(parts, members)
    if INPUT in metrics and not bool(metrics[INPUT].any()):
        raise InvalidValue(
            "encoding", "a piecewise constant code", "differentiable; use finite differences for one-hot codes"
        )
    return metrics


def _joined(parts: Sequence[Mapping[str, Tensor]], axis: int) -> dict[str, Tensor]:
    """Concatenate each stage's tensors from all chunks of points."""
    return {name: torch.cat([part[name] for part in parts], dim=axis) for name in parts[0]}


def _product(jacobian: Tensor) -> Tensor:
    return jacobian.mT @ jacobian


def _batched_products(reader: Reader, points: Tensor, members: int) -> dict[str, Tensor]:
    """Return JᵀJ of every stage, with all tangents in one pass."""

    def stages(values: Tensor) -> dict[str, Tensor]:
        return tapped(reader, values, Tensor.clone)  # the next layer may work in place

    tangents = _unit_tangents(points)[:, None, :].expand(points.shape[1], *points.shape)
    columns = vmap(lambda tangent: jvp(stages, (points,), (tangent,))[1])(tangents)
    return {name: _product(flat(column, members + 1).movedim(0, -1)) for name, column in columns.items()}


def stage_jacobians(reader: Reader, points: Float[Tensor, "point factor"]) -> dict[str, Tensor]:
    """Return the `(point, feature, factor)` Jacobian of every stage at a few points, for its `sampled` features."""
    with torch.no_grad():
        return _jacobians(reader, points, 0, lambda jacobian: sampled(jacobian.mT).mT.clone())


def _jacobians(reader: Reader, points: Tensor, members: int, keep: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """Return `keep(Jacobian)` for every stage, running each point once per factor with that factor's tangent."""
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
    activations: Float[Tensor, "... point feature"], shape: tuple[int, ...], spacing: Sequence[float | Tensor] = ()
) -> Float[Tensor, "... point factor factor"]:
    """Return the metric tensor `(*member, point, factor, factor)` from differences between neighbouring grid points.

    Each factor needs at least two values. `spacing` has, for each factor, the distance between its values (default: 1)
    or, if they are unevenly spaced, the values themselves.

    >>> line = torch.arange(3.0)[:, None]
    >>> finite_difference_metric(line, (3,), (0.5,)).flatten().tolist()
    [4.0, 4.0, 4.0]
    """
    if min(shape) < 2:
        raise InvalidValue("shape", shape, "at least 2 values per factor")
    lead = activations.ndim - 2
    grid, columns = activations.unflatten(lead, shape), []
    for axis, step in enumerate(spacing or (1.0,) * len(shape), start=lead):
        distances = (step.to(grid),) if isinstance(step, Tensor) else step
        slope = torch.gradient(grid, spacing=distances, dim=axis)[0]
        columns.append(slope.flatten(lead, lead + len(shape) - 1))
    return _product(torch.stack(columns, dim=-1))


def neighbour_metric(
    reader: Reader,
    grid: FactorGrid,
    indices: Int[Tensor, " point"],
    device: torch.device,
    *,
    members: int = 0,
    fraction: float = 1.0,
    memory: int = MEMORY,
) -> dict[str, Float[Tensor, "... point factor factor"]]:
    """Return the finite-difference metric tensor of every stage at selected points of a grid, by stage name.

    The result equals `finite_difference_metric` at these points. With a `fraction`, the differences are to that
    fraction of the way to the neighbouring grid points, so that they approach derivatives as it approaches 0.

    >>> from recombine.factors import Factor
    >>> grid = FactorGrid((Factor("x", 0, 4, 9),))
    >>> doubled = lambda values, tap: tap("output", 2 * values)
    >>> neighbour_metric(doubled, grid, torch.tensor([0, 5]), torch.device("cpu"))["output"].flatten().tolist()
    [4.0, 4.0]
    """
    factors, steps, points = len(grid.shape), grid.positions(indices), grid.rows(indices)
    dtype = precision(device)
    sizes = stage_sizes(reader, points[:FEWEST].to(device, dtype).clone(), members)
    size = max(1, memory // (4 * (2 * factors + 1 + COPIES) * sum(sizes.values())))
    parts = []
    for here, at in zip(points.split(size), steps.split(size), strict=True):
        neighbours, distances = _neighbours(here, at, grid, fraction)

        def product(activation: Tensor, distances: Tensor = distances) -> Tensor:
            apart = flat(activation, members).unflatten(members, (2 * factors + 1, -1)).movedim(members, 0)
            ahead, behind, centre = apart.split((factors, factors, 1))
            after, before = distances.view(2, factors, *[1] * members, -1, 1).to(centre)
            # weights of a second-order difference; 1 at the ends of the grid, where a neighbour is the point itself
            weight = torch.where((after == 0) | (before == 0), 1.0, before / after)
            slopes = (weight * (ahead - centre) + (centre - behind) / weight) / (after + before)
            return _product(slopes.movedim(0, -1))

        with torch.no_grad():
            parts.append(tapped(reader, neighbours.to(device, dtype).clone(), product))
    return _joined(parts, members)


def _neighbours(points: Tensor, steps: Tensor, grid: FactorGrid, fraction: float) -> tuple[Tensor, Tensor]:
    """Return the points ahead and behind along each factor, the points themselves, and the distances to both.

    They lie a fraction of the way to the neighbouring grid point.
    """
    sides, distances = [], []
    for direction in (1, -1):
        for k, factor in enumerate(grid.factors):
            moved = points.clone()
            beside = factor.values[(steps[:, k] + direction).clamp(0, factor.count - 1)]
            moved[:, k] = torch.lerp(points[:, k], beside, fraction)
            sides.append(moved)
            distances.append((moved[:, k] - points[:, k]).abs())
    return torch.cat([*sides, points]), torch.stack(distances).unflatten(0, (2, -1))


def metric_method(attributes: Mapping[str, str]) -> str:
    """Describe how a result's metric tensor was computed and, if not exactly, why, based on its attributes."""
    return ", ".join(filter(None, (attributes.get("metric"), attributes.get("metric_reason"))))
