"""Gram matrices of a network's outputs, and which kernels they are like (§3.3; Eq. 1–4, 29, 34; Fig. 1e, 8).

Conventions
-----------
A Gram matrix is over the grid's points, from flattened outputs: `cosine` similarity, `l2` distance, or `overlap`: the
share of pixels past a threshold in both outputs, of all pixels. For dark bumps on white "past" is below (the scripts:
0.3), for bright ones above 1 − that; a threshold that is given is a share of the bump's height, which is 1, over the
background, of either kind. A block takes some rows (held-out points) and columns (kept points).

Theoretical kernels between points z and z′, from equality of their factor values (δ) or distance:

- `binary`: 1 if any factor is equal, δ_x + δ_y − δ_x δ_y for two (Eq. 3–4);
- `product`: 1 if all are equal, δ_x δ_y: nothing at all between held-out and kept points, so no agreement;
- `gaussian_product`: Π exp(−d²/4s²), the overlap of bumps of variance s² in every factor at once;
- `gaussian_radial`: the same with the one width, of a geometric range, that agrees best;
- `gaussian_sum`: Σ exp(−d²/4s²), a smooth form of the binary one.

Rows are normalised to unit sum. Agreement is the Pearson correlation of all entries; its null permutes the columns'
labels, all rows alike.

A kernel that chooses its width fits better than one that has none to choose, so in `kernel_families` every family
chooses from the same widths and profiles, on one half of the kept points, and is scored on the other half.

A profile k(d) is `gaussian`, exp(−d² / 2w²), or `exponential`, exp(−d / w), of a width w in grid steps; the smallest
width is nearly δ. Between two points, d_f their distance in factor f and r the Euclidean distance:

- `or`: 1 − Π(1 − k(d_f)), for two factors k_x + k_y − k_x k_y, the smoothed binary kernel of Eq. 3–4;
- `sum`: Σ k(d_f), the same without its last term;
- `product`: Π k(d_f), alike only if alike in every factor;
- `radial`: k(r).

With the Gaussian profile the product is the radial kernel; only the exponential one (whose product falls with the
city-block distance) tells them apart, which is why there are two profiles. Both are kernels that do not superpose, and
the claim is about the binary one against the better of them. The sum is the `or` kernel wherever two points are not
near in both factors, as in the interior of a hold-out at small widths; it is no rival of it but another form.

Columns (kept points) are split in two halves by blocks, not as a checkerboard is: neighbours have nearly the same
outputs, so a checkerboard would leave to each point its own likeness in the other half. The grid is cut in the middle
of each factor, and a block's half is the parity of the number of factors in whose upper part it lies: for two factors,
opposite quadrants belong together, so each half has as many low and high values of either factor and columns that
share a value with every row. Agreement is Pearson's correlation of all entries, mean over the two halves; each family
takes the width and profile that agrees best with the other half.

`standardised` rows (mean 0 and spread 1 within each half, in the block and in the theory alike) make all rows count
the same. Dividing rows by their sums would not do for distances, which are taken with a minus sign.

The null keeps how outputs vary from point to point: all columns' positions are shifted by the same number of steps
along each factor, round the end of the grid, and `or` chooses again; p is over all such shifts. Small ones, and those
along one factor, keep much of its agreement, so p is on the safe side. Sums over entries for all shifts at once are
circular correlations over the grid, by Fourier transforms.

Known answers: a block that is a member of a family plus noise agrees best with that family (the two that coincide for
the Gaussian profile: equally well).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from recombine.errors import InvalidValue

DARK_THRESHOLD = 0.3
"""A dark pixel is below this (published scripts)."""
PERMUTATIONS = 1999
WIDTHS: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Range from which the radial kernel takes its width, in grid spacings."""
FAMILY_WIDTHS: tuple[float, ...] = (0.35, 0.5, 0.71, 1.0, 1.41, 2.0, 2.83, 4.0, 5.66, 8.0)
"""In grid steps."""
TIE = 1e-9
"""Correlations that differ by less are equal."""
ROUNDING = 1e-12
"""Share of their own length by which numbers that are the same may differ."""
PROFILES: dict[str, Callable[..., Tensor]] = {
    "gaussian": lambda distance, width: torch.exp(-(distance**2) / (2 * width**2)),
    "exponential": lambda distance, width: torch.exp(-distance / width),
}
FAMILIES: dict[str, Callable[[Tensor, Callable[[Tensor], Tensor]], Tensor]] = {
    "or": lambda distances, profile: 1 - (1 - profile(distances)).prod(dim=-1),
    "product": lambda distances, profile: profile(distances).prod(dim=-1),
    "radial": lambda distances, profile: profile(distances.norm(dim=-1)),
    "sum": lambda distances, profile: profile(distances).sum(dim=-1),
}
"""Kernels by name, from the distances along each factor."""

Kernel = Literal["cosine", "l2", "overlap"]


def gram_matrix(
    outputs: Float[Tensor, "*member point pixel"],
    kernel: Kernel = "cosine",
    *,
    dark: bool = False,
    threshold: float | None = None,
) -> Float[Tensor, "*member point point"]:
    """Similarity (or distance) of the outputs at every pair of points, in double precision.

    For `overlap`, bumps are bright or `dark` on white, and the threshold is the share of the bump's height, above 0 and
    at most 1, that a pixel must be over (for dark bumps: under) the background; the scripts' if left out, about 0.7.

    >>> gram_matrix(torch.tensor([[2.0, 0.0], [0.0, 3.0]])).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    flat = outputs.double()
    if kernel == "cosine":
        unit = torch.nn.functional.normalize(flat, dim=-1)
        return unit @ unit.mT
    if kernel == "l2":
        square = flat.square().sum(dim=-1)
        return (square[..., :, None] + square[..., None, :] - 2 * flat @ flat.mT).clamp(min=0).sqrt()
    if kernel != "overlap":
        raise InvalidValue("kernel", kernel, "cosine, l2 or overlap")
    least = 1 - DARK_THRESHOLD if threshold is None else threshold
    most = DARK_THRESHOLD if threshold is None else 1 - threshold
    past = (flat < most if dark else flat > least).double()
    return past @ past.mT / flat.shape[-1]


def _equal(rows: Tensor, columns: Tensor) -> Tensor:
    return rows[:, None, :] == columns[None, :, :]


def _bumps(rows: Tensor, columns: Tensor, width: float) -> Tensor:
    return torch.exp(-((rows[:, None, :] - columns[None, :, :]) ** 2) / (4 * width**2))


THEORIES: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "binary": lambda rows, columns, width: _equal(rows, columns).any(dim=-1).double(),
    "product": lambda rows, columns, width: _equal(rows, columns).all(dim=-1).double(),
    "gaussian_product": lambda rows, columns, width: _bumps(rows, columns, width).prod(dim=-1),
    "gaussian_sum": lambda rows, columns, width: _bumps(rows, columns, width).sum(dim=-1),
}


def theoretical_kernel(
    name: str, rows: Float[Tensor, "row factor"], columns: Float[Tensor, "column factor"], width: float = 1.0
) -> Float[Tensor, "row column"]:
    """One of `THEORIES` between points, for bumps of a width in grid spacings; rows sum to 1, or to 0 without likeness.

    >>> points = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> theoretical_kernel("binary", points[:1], points).tolist()
    [[0.5, 0.5, 0.0]]
    """
    return normalised(THEORIES[name](rows, columns, width))


def normalised(kernel: Float[Tensor, "*member row column"]) -> Float[Tensor, "*member row column"]:
    """Each row divided by its sum; a row of zeros stays."""
    total = kernel.sum(dim=-1, keepdim=True)
    return torch.where(total == 0, 0.0, kernel / torch.where(total == 0, 1.0, total))


def correlation(first: Float[Tensor, "*member row column"], second: Float[Tensor, "row column"]) -> Tensor:
    """Pearson correlation of all entries; 0 where one of them does not vary."""
    a = first.flatten(-2) - first.flatten(-2).mean(dim=-1, keepdim=True)
    b = second.flatten() - second.mean()
    scale = a.norm(dim=-1) * b.norm()
    return torch.where(scale > 0, (a @ b) / torch.where(scale > 0, scale, 1.0), 0.0)


@dataclass(frozen=True)
class KernelAgreement:
    """How well each theoretical kernel describes a block, with a permutation test of the binary one."""

    agreement: dict[str, Tensor]
    p_value: Tensor
    """Share of permutations (and the truth itself) in which the binary kernel agrees at least as well."""


def kernel_agreement(
    gram: Float[Tensor, "*member point point"],
    positions: Float[Tensor, "point factor"],
    held_out: Bool[Tensor, " point"],
    *,
    permutations: int = PERMUTATIONS,
) -> KernelAgreement:
    """Agreement of the held-out × kept block of a Gram matrix with every theoretical kernel; positions in spacings."""
    if not bool(held_out.any()) or bool(held_out.all()):
        raise InvalidValue("held_out", f"{int(held_out.sum())} points", "a mask with points on both sides")
    rows, columns = positions[held_out].double(), positions[~held_out].double()
    block = normalised(gram.double()[..., held_out, :][..., ~held_out])
    agreement = {name: correlation(block, theoretical_kernel(name, rows, columns)) for name in THEORIES}
    radial = [correlation(block, theoretical_kernel("gaussian_product", rows, columns, w)) for w in WIDTHS]
    agreement["gaussian_radial"] = torch.stack(radial).amax(dim=0)
    binary = theoretical_kernel("binary", rows, columns)
    return KernelAgreement(agreement, _permutation_p(block, binary, agreement["binary"], permutations))


def _permutation_p(block: Tensor, theory: Tensor, agreement: Tensor, permutations: int) -> Tensor:
    """Share of column orders in which the theory agrees at least as well.

    Permuting columns changes neither means nor norms, so only Σ block · theory[:, order] is left, and that is a sum
    over entries of one matrix of products between columns.
    """
    products = theory.mT @ block  # [theory's column, block's column]
    means = block.mean(dim=(-2, -1)) * theory.mean() * theory.numel()
    spread = (block - block.mean(dim=(-2, -1), keepdim=True)).flatten(-2).norm(dim=-1) * (theory - theory.mean()).norm()
    generator = torch.Generator().manual_seed(0)
    columns = theory.shape[1]
    orders = torch.rand(permutations, columns, generator=generator, dtype=torch.float64).argsort(dim=1)
    at = (orders * columns + torch.arange(columns)).to(theory.device)
    sums = products.flatten(-2)[..., at.flatten()].unflatten(-1, at.shape).sum(dim=-1) - means[..., None]
    scale = torch.where(spread > 0, spread, 1.0)[..., None]
    permuted = torch.where(spread[..., None] > 0, sums / scale, 0.0)
    beaten = (permuted >= agreement[..., None] - 1e-12).sum(dim=-1)
    return (beaten + 1).to(agreement.dtype) / (permutations + 1)


def block_contrast(
    gram: Float[Tensor, "*member point point"],
    positions: Float[Tensor, "point factor"],
    held_out: Bool[Tensor, " point"] | None = None,
) -> Float[Tensor, "*member"]:
    """Mean similarity of pairs that share a factor value minus that of pairs that share none, over the spread.

    With `held_out`, only pairs of a held-out and a kept point count (the OOD × ID block, whose own spread it is then);
    all pairs of different points without. NaN where no pair shares a value, or all do.
    """
    shares = _equal(positions, positions).any(dim=-1)
    if held_out is None:
        counted = ~torch.eye(len(positions), dtype=torch.bool, device=gram.device)
    else:
        counted = held_out[:, None] & ~held_out[None, :]
    with_one, without = gram[..., shares & counted], gram[..., ~shares & counted]
    return (with_one.mean(dim=-1) - without.mean(dim=-1)) / gram[..., counted].std(dim=-1)


@dataclass(frozen=True)
class FamilyAgreement:
    """How well each family describes a block, on points that its width was not chosen on."""

    agreement: dict[str, Float[Tensor, "*member"]]
    width: dict[str, Float[Tensor, "*member half"]]
    """Chosen on the other half of the columns, in grid steps."""
    p_value: Float[Tensor, "*member"]
    """Share of all shifts, the one by nothing among them, in which `or` agrees at least as well."""

    @property
    def margin(self) -> Float[Tensor, "*member"]:
        """Agreement of `or` less that of the better of `product` and `radial`."""
        return self.agreement["or"] - torch.maximum(self.agreement["product"], self.agreement["radial"])


def family_kernels(
    family: str,
    rows: Float[Tensor, "row factor"],
    columns: Float[Tensor, "column factor"],
    widths: Sequence[float] = FAMILY_WIDTHS,
) -> Float[Tensor, "candidate row column"]:
    """A family's kernels between points in grid steps: for each width of the first profile, then of the second.

    >>> here, there = torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 9.0], [9.0, 9.0]])
    >>> family_kernels("or", here, there, [0.35])[0].tolist()
    [[1.0, 0.0]]
    """
    distances = (rows.double()[:, None, :] - columns.double()[None, :, :]).abs()
    profiles = [partial(profile, width=width) for profile in PROFILES.values() for width in widths]
    return torch.stack([FAMILIES[family](distances, profile) for profile in profiles])


def kernel_families(
    gram: Float[Tensor, "*member point point"],
    shape: tuple[int, ...],
    held_out: Bool[Tensor, " point"],
    *,
    rows: Bool[Tensor, " point"] | None = None,
    widths: Sequence[float] = FAMILY_WIDTHS,
    standardised: bool = False,
) -> FamilyAgreement:
    """Agreement of the held-out × kept block of a Gram matrix with each family of kernels.

    Similarities are as `gram_matrix` gives them, distances with a minus sign. Rows may be some of the held-out points,
    such as the interior. Every family chooses from the same widths; `standardised` rows have mean 0 and spread 1.
    """
    rows = held_out if rows is None else rows
    if not bool(rows.any()) or bool((rows & ~held_out).any()):
        raise InvalidValue("rows", f"{int(rows.sum())} points", "a mask of held-out points, at least one")
    places = torch.cartesian_prod(*(torch.arange(n, device=gram.device) for n in shape)).reshape(-1, len(shape))
    kept = torch.nonzero(~held_out).flatten()
    halves = _halves(places[kept], shape)
    block = gram.double()[..., rows, :][..., kept]
    known = [_unit(block[..., half], standardised) for half in halves]
    position = places.double()
    scores, chosen = {}, {}
    for family in FAMILIES:
        table = family_kernels(family, position[rows], position[kept], widths)
        theory = [_unit(table[..., half], standardised) for half in halves]
        scores[family], chosen[family] = _score([b @ t.mT for b, t in zip(known, theory, strict=True)])
    everywhere = family_kernels("or", position[rows], position, widths)
    columns = [kept[half] for half in halves]
    shifted = [_shifted(b, everywhere, c, shape, standardised) for b, c in zip(known, columns, strict=True)]
    beaten = _score(shifted)[0][..., 1:] >= scores["or"][..., None] - TIE  # the first shift is by nothing
    values = torch.tensor(list(widths), dtype=torch.float64, device=gram.device)
    return FamilyAgreement(
        scores,
        {family: values[index % len(values)] for family, index in chosen.items()},
        (beaten.sum(dim=-1) + 1).double() / len(held_out),
    )


def _halves(places: Tensor, shape: tuple[int, ...]) -> list[Tensor]:
    """Indices of the columns of each half."""
    middle = torch.tensor([(count - 1) / 2 for count in shape], device=places.device)
    parity = (places > middle).sum(dim=-1) % 2
    halves = [torch.nonzero(parity == half).flatten() for half in range(2)]
    if min(map(len, halves)) < 2:
        raise InvalidValue(
            "held_out", f"a mask that keeps {len(places)} points", "a mask that keeps points in both halves"
        )
    return halves


def _unit(kernel: Tensor, standardised: bool) -> Tensor:
    """All entries as one vector of mean 0 and length 1 (or 0, if they do not vary), rows standardised first."""
    return _centred((_centred(kernel) if standardised else kernel).flatten(-2))


def _centred(values: Tensor) -> Tensor:
    """Rows of mean 0 and length 1; of zeros where values differ by rounding only."""
    centred = values - values.mean(dim=-1, keepdim=True)
    length = centred.norm(dim=-1, keepdim=True)
    varies = length > ROUNDING * values.norm(dim=-1, keepdim=True)
    return torch.where(varies, centred / torch.where(varies, length, 1.0), 0.0)


def _score(agreement: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Correlation with each half of the candidate (last axis) that is best on the other one, mean; and these."""
    chosen = torch.stack([agreement[1].argmax(dim=-1), agreement[0].argmax(dim=-1)], dim=-1)
    scores = torch.stack(agreement, dim=-2).gather(-1, chosen[..., None])[..., 0]
    return scores.mean(dim=-1), chosen


def _shifted(known: Tensor, theory: Tensor, columns: Tensor, shape: tuple[int, ...], standardised: bool) -> Tensor:
    """Correlations of a half's unit vector with each kernel, for every shift: `(*member, shift, candidate)`.

    With B the block and T the kernel, Σ_c B[r, c] T[r, c + s] gives their product for a shift s; with ones in place
    of B, the sums of T and T² that its mean and length need.
    """
    axes = tuple(range(-len(shape), 0))
    rows, points = theory.shape[1:]

    def transformed(values: Tensor) -> Tensor:
        return torch.fft.rfftn(values.unflatten(-1, shape), dim=axes)

    def everywhere(spectrum: Tensor) -> Tensor:
        return torch.fft.irfftn(spectrum, s=shape, dim=axes).flatten(-len(shape))

    block = torch.zeros(*known.shape[:-1], rows, points, dtype=known.dtype, device=known.device)
    block[..., columns] = known.unflatten(-1, (rows, -1))
    ones = torch.zeros(points, dtype=known.dtype, device=known.device)
    ones[columns] = 1.0
    block_spectrum, ones_spectrum = transformed(block).conj(), transformed(ones).conj()
    row_axis = -1 - len(shape)
    correlations = []
    for kernel in theory:
        spectra = block_spectrum * transformed(kernel), *(ones_spectrum * transformed(kernel**n) for n in (1, 2))
        if not standardised:  # sums over rows too
            spectra = tuple(spectrum.sum(dim=row_axis, keepdim=True) for spectrum in spectra)
        product, total, square = (everywhere(spectrum) for spectrum in spectra)
        variance = square - total**2 / (len(columns) * (1 if standardised else rows))
        varies = variance > ROUNDING * square
        unit = torch.where(varies, product / torch.where(varies, variance, 1.0).sqrt(), 0.0)
        correlations.append(unit.sum(dim=-2) / varies.sum(dim=-2).clamp(min=1).sqrt())
    return torch.stack(correlations, dim=-1)
