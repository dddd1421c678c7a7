"""Gram matrices of outputs, and their agreement with theoretical kernels (§3.3; Eq. 1–4, 29, 34; Fig. 1e, 8).

A Gram matrix compares flattened outputs between grid points by `cosine` similarity, `l2` distance, or `overlap`, the
fraction of all pixels past a threshold in both outputs. A block's rows are held-out points; its columns are kept ones.

Theoretical kernels compare points z and z′ by the equality of their factor values (δ) or the distances d between them:

- `binary`: 1 if any factor is equal, δ_x + δ_y − δ_x δ_y for two (Eq. 3–4);
- `product`: 1 if all are equal, δ_x δ_y; it is 0 between held-out and kept points, so its agreement is 0;
- `gaussian_product`: Π exp(−d²/4s²), the overlap of bumps of variance s² in every factor; `gaussian_radial`: the same
  with the best of several widths; `gaussian_sum`: Σ exp(−d²/4s²), a smooth form of the binary kernel.

Rows are normalised to unit sum. Agreement is the Pearson correlation of all entries; its null permutes the columns.

A kernel with a fitted width agrees better than one without, so in `kernel_families` every family selects from the same
widths and profiles on one half of the kept points, and is scored on the other half. A profile k(d) is `gaussian`,
exp(−d² / 2w²), or `exponential`, exp(−d / w), of a width w in grid steps; the smallest width is nearly δ. With d_f the
distance in factor f and r the Euclidean distance, the families are

- `or`: 1 − Π(1 − k(d_f)), for two factors k_x + k_y − k_x k_y, the smoothed binary kernel of Eq. 3–4;
- `sum`: Σ k(d_f), which equals `or` except where points are close in all factors, as no kept point is to a held-out
  one in the interior. The two are therefore told apart among held-out points a few steps away (`near`), leaving out
  each point's similarity to itself, which is 1 for every network. A sum of kept bumps has a `sum` kernel, as points in
  a row have half of their bumps in common. Even there the two are much alike: for exact members of either family, the
  other correlates less by 0.05 to 0.13 for Gaussian profiles of width 1 and more, and by 0.02 to 0.05 for exponential
  ones;
- `product`: Π k(d_f), large only if all factors are similar;
- `radial`: k(r), which equals the product for the Gaussian profile but not for the exponential one.

The columns are split by blocks of the grid: neighbours have nearly the same outputs, so a checkerboard would leave near
copies of each point in the other half. The grid is cut in the middle of each factor, and blocks are assigned by the
parity of the number of factors with values above the cut. For two factors, opposite quadrants form a half, so each half
has as many low as high values, and columns that share a value with each row. Scores are averaged over the halves.
`standardised` rows (mean 0 and spread 1 within each half, in both the block and the theory) have equal weight.

The null preserves how outputs vary between points: all columns are shifted cyclically by the same number of steps along
each factor, and `or` selects its width and profile again; p is over all shifts. Small shifts, and shifts along one
factor, preserve much of the agreement, so p is conservative. Sums for all shifts are computed by FFT.

Known answers: a block that is a member of a family plus noise agrees best with that family (or equally well with two
that coincide for the Gaussian profile).
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

THRESHOLD = 0.7
"""Fraction of a bump's height that pixels must exceed to overlap; dark ones are below 0.3 (as in published scripts)."""
PERMUTATIONS = 1999
FAMILY_WIDTHS: tuple[float, ...] = (0.35, 0.5, 0.71, 1.0, 1.41, 2.0, 2.83, 4.0, 5.66, 8.0)
"""Candidate widths for each family, in grid steps."""
ROUNDING = 1e-12
"""Relative deviation from the mean below which values count as constant."""
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
"""Functions that compute a kernel from the distances along each factor and a profile."""
THEORIES: dict[str, tuple[str, Callable[..., Tensor]]] = {
    "binary": ("or", lambda distance, width: (distance == 0).double()),
    "product": ("product", lambda distance, width: (distance == 0).double()),
    "gaussian_product": ("product", lambda distance, width: torch.exp(-(distance**2) / (4 * width**2))),
    "gaussian_sum": ("sum", lambda distance, width: torch.exp(-(distance**2) / (4 * width**2))),
}
"""Family and profile of each theoretical kernel."""

Kernel = Literal["cosine", "l2", "overlap"]


def gram_matrix(
    outputs: Float[Tensor, "*member point pixel"],
    kernel: Kernel = "cosine",
    *,
    dark: bool = False,
    threshold: float = THRESHOLD,
) -> Float[Tensor, "*member point point"]:
    """Return the similarity (or distance) of the outputs at every pair of points, in double precision.

    For `overlap`, bumps are bright or `dark` on white, and the threshold is the fraction of the bump's height by which
    a pixel must exceed (for dark bumps: fall below) the background.

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
    past = (flat < 1 - threshold if dark else flat > threshold).double()
    return past @ past.mT / flat.shape[-1]


def theoretical_kernel(
    name: str, rows: Float[Tensor, "row factor"], columns: Float[Tensor, "column factor"], width: float = 1.0
) -> Float[Tensor, "row column"]:
    """Return a kernel from `THEORIES` between points, for bumps of a given width in grid steps; rows sum to 1 or are 0.

    >>> points = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> theoretical_kernel("binary", points[:1], points).tolist()
    [[0.5, 0.5, 0.0]]
    """
    family, profile = THEORIES[name]
    return normalised(FAMILIES[family](_distances(rows, columns), partial(profile, width=width)))


def _distances(rows: Tensor, columns: Tensor) -> Float[Tensor, "row column factor"]:
    return (rows.double()[:, None, :] - columns.double()[None, :, :]).abs()


def normalised(kernel: Float[Tensor, "*member row column"]) -> Float[Tensor, "*member row column"]:
    """Divide each row by its sum; rows that sum to 0 become 0."""
    total = kernel.sum(dim=-1, keepdim=True)
    return torch.where(total == 0, 0.0, kernel / torch.where(total == 0, 1.0, total))


def correlation(first: Float[Tensor, "*member row column"], second: Float[Tensor, "row column"]) -> Tensor:
    """Return the Pearson correlation over all entries; 0 if either kernel is constant."""
    a = first.flatten(-2) - first.flatten(-2).mean(dim=-1, keepdim=True)
    b = second.flatten() - second.mean()
    scale = a.norm(dim=-1) * b.norm()
    return torch.where(scale > 0, (a @ b) / torch.where(scale > 0, scale, 1.0), 0.0)


@dataclass(frozen=True)
class KernelAgreement:
    """Agreement of a block with each theoretical kernel, and a permutation test of the binary one."""

    agreement: dict[str, Tensor]
    p_value: Tensor
    """Fraction of permutations (including the identity) in which the binary kernel agrees at least as well."""


def kernel_agreement(
    gram: Float[Tensor, "*member point point"],
    positions: Float[Tensor, "point factor"],
    held_out: Bool[Tensor, " point"],
    *,
    permutations: int = PERMUTATIONS,
) -> KernelAgreement:
    """Compare the held-out × kept block of a Gram matrix with each theoretical kernel; positions are in grid steps."""
    if not bool(held_out.any()) or bool(held_out.all()):
        raise InvalidValue("held_out", f"{int(held_out.sum())} points", "a mask with held-out and kept points")
    rows, columns = positions[held_out].double(), positions[~held_out].double()
    block = normalised(gram.double()[..., held_out, :][..., ~held_out])
    agreement = {name: correlation(block, theoretical_kernel(name, rows, columns)) for name in THEORIES}
    widths = (0.5, 1.0, 2.0, 4.0, 8.0)  # in grid steps
    radial = [correlation(block, theoretical_kernel("gaussian_product", rows, columns, w)) for w in widths]
    agreement["gaussian_radial"] = torch.stack(radial).amax(dim=0)
    binary = theoretical_kernel("binary", rows, columns)
    return KernelAgreement(agreement, _permutation_p(block, binary, agreement["binary"], permutations))


def _permutation_p(block: Tensor, theory: Tensor, agreement: Tensor, permutations: int) -> Tensor:
    """Return the fraction of column orders in which the theory agrees at least as well.

    Permuting columns changes neither means nor norms, so only Σ block · theory[:, order] must be computed, which is a
    sum over entries of the matrix of products between columns.
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
    """Return the mean similarity of pairs that share a factor value minus that of pairs that share none.

    Pairs consist of a held-out and a kept point (the OOD × ID block) or, without `held_out`, of any two different
    points. The difference is in standard deviations over all pairs. The result is NaN if all pairs share a value, or
    none does.
    """
    shares = (positions[:, None, :] == positions[None, :, :]).any(dim=-1)
    if held_out is None:
        counted = ~torch.eye(len(positions), dtype=torch.bool, device=gram.device)
    else:
        counted = held_out[:, None] & ~held_out[None, :]
    sharing, other = gram[..., shares & counted], gram[..., ~shares & counted]
    return (sharing.mean(dim=-1) - other.mean(dim=-1)) / gram[..., counted].std(dim=-1)


@dataclass(frozen=True)
class FamilyAgreement:
    """Agreement of a block with each family, on points not used to select its width."""

    agreement: dict[str, Float[Tensor, "*member"]]
    width: dict[str, Float[Tensor, "*member half"]]
    """Width selected on the other half of the columns, in grid steps."""
    p_value: Float[Tensor, "*member"]
    """Fraction of all shifts (including none) in which `or` agrees at least as well; NaN if not computed."""

    @property
    def margin(self) -> Float[Tensor, "*member"]:
        """Agreement of `or` minus that of the better of `product` and `radial`."""
        return self.agreement["or"] - torch.maximum(self.agreement["product"], self.agreement["radial"])


def family_kernels(
    family: str,
    rows: Float[Tensor, "row factor"],
    columns: Float[Tensor, "column factor"],
    widths: Sequence[float] = FAMILY_WIDTHS,
) -> Float[Tensor, "candidate row column"]:
    """Return a family's kernels between points: for each width with the first profile, then with the second.

    >>> here, there = torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 9.0], [9.0, 9.0]])
    >>> family_kernels("or", here, there, [0.35])[0].tolist()
    [[1.0, 0.0]]
    """
    distances = _distances(rows, columns)
    profiles = [partial(profile, width=width) for profile in PROFILES.values() for width in widths]
    return torch.stack([FAMILIES[family](distances, profile) for profile in profiles])


def kernel_families(
    gram: Float[Tensor, "*member point point"],
    shape: tuple[int, ...],
    held_out: Bool[Tensor, " point"],
    *,
    rows: Bool[Tensor, " point"] | None = None,
    near: int | None = None,
    widths: Sequence[float] = FAMILY_WIDTHS,
    standardised: bool = False,
    shifts: bool = True,
) -> FamilyAgreement:
    """Compare a block of a Gram matrix, by default held-out × kept, with each family of kernels.

    A Gram matrix of distances must be negated. `rows` selects some of the held-out points, such as the interior
    (default: all). They are compared with all kept points or, given `near`, with the other held-out points at most so
    many steps away along every factor. Every family selects from the same widths; `standardised` rows have mean 0 and
    standard deviation 1. The p-value is for kept points only and takes most of the time; without `shifts`, it is NaN.
    """
    rows = held_out if rows is None else rows
    if not bool(rows.any()) or bool((rows & ~held_out).any()):
        raise InvalidValue("rows", f"{int(rows.sum())} points", "a non-empty mask of held-out points")
    if near is not None and standardised:
        raise InvalidValue("standardised", standardised, "False for near points")
    places = torch.cartesian_prod(*(torch.arange(n, device=gram.device) for n in shape)).reshape(-1, len(shape))
    columns = torch.nonzero(~held_out if near is None else held_out).flatten()
    halves = _halves(places[columns], shape)
    steps = (places[rows][:, None, :] - places[columns]).abs().amax(dim=-1)
    pairs = [(steps[:, half] > 0) & (steps[:, half] <= (near or max(shape))) for half in halves]

    def units(kernel: Tensor) -> list[Tensor]:
        """Return the unit vector of the block's entries in each half of the columns."""
        if near is None:
            return [_unit(kernel[..., half], standardised) for half in halves]
        return [_centred(kernel[..., half][..., own]) for half, own in zip(halves, pairs, strict=True)]

    known = units(gram.double()[..., rows, :][..., columns])
    position = places.double()
    scores, chosen = {}, {}
    for family in FAMILIES:
        theory = units(family_kernels(family, position[rows], position[columns], widths))
        scores[family], chosen[family] = _score([b @ t.mT for b, t in zip(known, theory, strict=True)])
    p_value = torch.full_like(scores["or"], torch.nan)
    if shifts and near is None:
        everywhere = family_kernels("or", position[rows], position, widths)
        parts = [columns[half] for half in halves]
        shifted = [_shifted(b, everywhere, c, shape, standardised) for b, c in zip(known, parts, strict=True)]
        # the first is the zero shift; correlations that differ by less than 1e-9 count as equal
        beaten = _score(shifted)[0][..., 1:] >= scores["or"][..., None] - 1e-9
        p_value = (beaten.sum(dim=-1) + 1).double() / len(held_out)
    values = torch.tensor(list(widths), dtype=torch.float64, device=gram.device)
    return FamilyAgreement(scores, {family: values[index % len(values)] for family, index in chosen.items()}, p_value)


def _halves(places: Tensor, shape: tuple[int, ...]) -> list[Tensor]:
    """Return the indices of the columns in each half."""
    middle = torch.tensor([(count - 1) / 2 for count in shape], device=places.device)
    parity = (places > middle).sum(dim=-1) % 2
    halves = [torch.nonzero(parity == half).flatten() for half in range(2)]
    if min(map(len, halves)) < 2:
        raise InvalidValue(
            "held_out", f"a mask with {len(places)} columns", "a mask with columns in both halves of the grid"
        )
    return halves


def _unit(kernel: Tensor, standardised: bool) -> Tensor:
    """Flatten all entries to a vector of mean 0 and norm 1 (or 0 if constant), optionally after standardising rows."""
    return _centred((_centred(kernel) if standardised else kernel).flatten(-2))


def _centred(values: Tensor) -> Tensor:
    """Scale rows to mean 0 and norm 1, or to zeros if they are constant up to rounding."""
    centred = values - values.mean(dim=-1, keepdim=True)
    length = centred.norm(dim=-1, keepdim=True)
    varies = length > ROUNDING * values.norm(dim=-1, keepdim=True)
    return torch.where(varies, centred / torch.where(varies, length, 1.0), 0.0)


def _score(agreement: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the mean over halves of the correlation of the candidate that is best on the other half, and its index."""
    chosen = torch.stack([agreement[1].argmax(dim=-1), agreement[0].argmax(dim=-1)], dim=-1)
    scores = torch.stack(agreement, dim=-2).gather(-1, chosen[..., None])[..., 0]
    return scores.mean(dim=-1), chosen


def _shifted(known: Tensor, theory: Tensor, columns: Tensor, shape: tuple[int, ...], standardised: bool) -> Tensor:
    """Return correlations `(*member, shift, candidate)` of a half's unit vector with each kernel, for every shift.

    With the block B and the kernel T, Σ_c B[r, c] T[r, c + s] is their product for the shift s; replacing B by ones
    gives the sums of T and T², from which the mean and norm of T are computed.
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
        if not standardised:  # also sum over rows
            spectra = tuple(spectrum.sum(dim=row_axis, keepdim=True) for spectrum in spectra)
        product, total, square = (everywhere(spectrum) for spectrum in spectra)
        variance = square - total**2 / (len(columns) * (1 if standardised else rows))
        varies = variance > ROUNDING * square
        unit = torch.where(varies, product / torch.where(varies, variance, 1.0).sqrt(), 0.0)
        correlations.append(unit.sum(dim=-2) / varies.sum(dim=-2).clamp(min=1).sqrt())
    return torch.stack(correlations, dim=-1)
