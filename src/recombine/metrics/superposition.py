"""Does a network superpose what it has memorised? (§3.3, §4.2; Fig. 1d, 4b)

Signals are outputs minus the background, S = D − background. For a held-out combination (x, y):

- `averaged`: S(x, ȳ) + S(x̄, y), where x̄ and ȳ are mean *codes* of x and y over the training data (as in the paper);
- `memorised`: Σ S(x, y′) + Σ S(x′, y) over the kept (not held-out) combinations that share x or y.

For n factors, there is one term per factor. A prediction P explains a fraction 1 − Σ(S − a P)² / Σ S² of the variance
over all held-out points and pixels, at the best scale a ≥ 0, after subtracting the means over points from S and P. It
is compared with that of the ground-truth images (`truth`) and of a null for each prediction (shuffled between points,
averaged over shuffles).

A network that superposes "all or some" of its memories need not weight them equally (§4.2, Fig. 4b), so
`nonnegative_superposition` and `stripe_superposition` fit weights w ≥ 0 for each point. The fraction explained is
1 − Σ‖S − A w‖² / Σ‖S‖² over the chosen points, where A's columns are signals of training images. It is NaN for a
network that draws nothing.

- `matched`: the columns are the kept combinations that share a factor's value with the point.
- `mismatched`: the same number of kept combinations that share none, averaged over draws. More columns, or columns
  spread more widely over the image, explain more, so the set has the layout of a matched one: it is the matched set of
  another held-out point that shares no value with this one, minus combinations that do, topped up from further such
  points if too small, or subsampled if too large. It may include combinations one step away, whose bumps overlap with
  those of matching ones, so the difference is conservative. Points with no matching combination, or with fewer
  mismatching than matching ones, are left out of both.
- `truth`: the true image alone; `beyond_truth`: the fraction that matched columns explain beyond the true image.

For stripes, A's columns are the point's stripes (one per factor) and the true bump. A bump overlaps with the stripes
that cross at it, so `stripes` + `bump` exceeds `both`. The share of each is its Shapley value relative to `both`: the
mean of what it explains alone and what it adds to the other. The two shares sum to 1.

Non-negative least squares is solved for many problems at once from AᵀA and Aᵀs, in double precision, by block principal
pivoting (Kim and Park 2011, SIAM J. Sci. Comput. 33); problems still unsolved after `PIVOTS` rounds are left to scipy.
Columns are scaled to unit length; a column of zeros gets weight 0, so problems of different sizes are padded with such
columns. A ridge of `RIDGE` makes the weights unique if columns coincide.

Known answers: see docs/metrics.md for equal weights. A network that draws any non-negative sum of matching memories
scores 1 for `matched` and much less for `mismatched`; one that draws every bump correctly scores about 0 for both. The
sum of two stripes has `stripes` 1; a bump has `bump` 1 and the larger share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from recombine.errors import InvalidValue

DRAWS = 3
"""Number of mismatched sets per point."""
ENTRIES_AT_ONCE = 2**24
"""Maximum number of entries of Gram matrices in memory."""
RIDGE = 1e-10
TOLERANCE = 1e-8
"""Allowed violation of the sign of a weight or gradient, relative to the largest product."""
PIVOTS = 40
"""Rounds for all problems at once; the few that are left (ill-conditioned ones) are faster one by one."""
PATIENCE = 3
"""Rounds without progress before columns are exchanged one at a time."""


def averaged_codes(
    codes: Float[Tensor, "point code"], sizes: Sequence[int], training: Float[Tensor, "row code"]
) -> list[Float[Tensor, "point code"]]:
    """Return, for each factor, the codes with every other factor's code replaced by its mean over the training data.

    `sizes` are the lengths of the factors' codes.

    >>> averaged_codes(torch.ones(1, 2), [1, 1], torch.zeros(3, 2))
    [tensor([[1., 0.]]), tensor([[0., 1.]])]
    """
    kept, means = (rows.split(list(sizes), dim=1) for rows in (codes, training.mean(dim=0).expand_as(codes)))
    return [torch.cat([*means[:k], own, *means[k + 1 :]], dim=1) for k, own in enumerate(kept)]


def averaged_prediction(
    signal: Callable[[Tensor], Tensor],
    codes: Float[Tensor, "point code"],
    sizes: Sequence[int],
    training: Float[Tensor, "row code"],
) -> Tensor:
    """Return the sum over factors of the network's signals for `averaged_codes`."""
    return torch.stack([signal(part) for part in averaged_codes(codes, sizes, training)]).sum(dim=0)


def explained_variance(
    signals: Float[Tensor, "*member point pixel"], prediction: Float[Tensor, "*member point pixel"]
) -> Float[Tensor, "*member"]:
    """Return the fraction of the signals' variance explained by a prediction at its best scale.

    >>> signals = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    >>> explained_variance(signals, 3 * signals).item()
    1.0
    """
    truth = signals.double() - signals.double().mean(dim=-2, keepdim=True)
    guess = prediction.double() - prediction.double().mean(dim=-2, keepdim=True)
    product, power = (truth * guess).sum(dim=(-2, -1)), guess.square().sum(dim=(-2, -1))
    scale = torch.where(power > 0, product / torch.where(power > 0, power, 1.0), 0.0).clamp(min=0)
    residual = (truth - scale[..., None, None] * guess).square().sum(dim=(-2, -1))
    return 1 - residual / truth.square().sum(dim=(-2, -1))


def superposition_scores(
    signals: Float[Tensor, "*member point pixel"],
    positions: Float[Tensor, "point factor"],
    held_out: Bool[Tensor, " point"],
    *,
    truth: Float[Tensor, "point pixel"] | None = None,
    averaged: Float[Tensor, "*member held pixel"] | None = None,
) -> dict[str, Float[Tensor, "*member"]]:
    """Return the fraction of the held-out outputs' variance explained by each prediction and by its null.

    Signals and true images (minus the background) cover all grid points, the averaged prediction only held-out points.
    Returns `memorised` and `memorised_null` per member, and `averaged`, `averaged_null` and `truth` if given.
    """
    outputs = signals[..., held_out, :]
    shares = positions[held_out][:, None, :] == positions[~held_out][None, :, :]
    predictions = {"memorised": shares.sum(dim=-1).to(signals.dtype) @ signals[..., ~held_out, :]}
    if averaged is not None:
        predictions["averaged"] = averaged
    scores = {}
    for name, prediction in predictions.items():
        scores[name] = explained_variance(outputs, prediction)
        scores[f"{name}_null"] = _mismatched(outputs, prediction)
    if truth is not None:
        scores["truth"] = explained_variance(outputs, truth[held_out].expand_as(outputs))
    return scores


def _mismatched(outputs: Tensor, prediction: Tensor) -> Tensor:
    """Return the mean explained variance if every point is assigned the prediction of another point."""
    generator = torch.Generator().manual_seed(0)
    scores = []
    for _ in range(20):
        order = torch.randperm(outputs.shape[-2], generator=generator)
        other = torch.empty_like(order)
        other[order] = order.roll(1)
        scores.append(explained_variance(outputs, prediction[..., other.to(outputs.device), :]))
    return torch.stack(scores).mean(dim=0)


def nonnegative_superposition(
    signals: Float[Tensor, "*member point pixel"],
    basis: Float[Tensor, "*member point pixel"] | Float[Tensor, "point pixel"],
    positions: Float[Tensor, "point factor"],
    held_out: Bool[Tensor, " point"],
    *,
    chosen: Bool[Tensor, " point"] | None = None,
    truth: Float[Tensor, "point pixel"] | None = None,
) -> dict[str, Float[Tensor, "*member"]]:
    """Return the fraction of the outputs explained by kept combinations that do or do not share a value with the point.

    The basis holds memories (true images, or each member's outputs) minus the background; only kept points are used.
    `chosen` selects the held-out points to explain (default: all). Returns `matched` and `mismatched` per member, plus
    `truth` and `beyond_truth` if the true images (minus the background) are given.
    """
    chosen = held_out if chosen is None else chosen
    if not bool(chosen.any()) or bool((chosen & ~held_out).any()):
        raise InvalidValue("chosen", int(chosen.sum()), "a non-empty mask of held-out points")
    points, sets = column_sets(positions.cpu(), held_out.cpu(), chosen.cpu(), DRAWS, 0)
    points, sets = points.to(signals.device), [columns.to(signals.device) for columns in sets]
    members, lead = signals.reshape(-1, *signals.shape[-2:]), signals.shape[:-2]
    own = basis.ndim > 2
    memories = basis.reshape(-1, *basis.shape[-2:]) if own else basis[None]
    width = max(columns.shape[1] for columns in sets) + 1
    each = len(points) * (width**2 + len(positions)) + own * len(positions) ** 2
    step = max(1, ENTRIES_AT_ONCE // max(each, 1))
    known = memories.split(step) if own else repeat(memories)
    right = None if truth is None else truth[points].double()
    parts = [
        _residuals(outputs[:, points].double(), basis.double(), sets, right)
        for outputs, basis in zip(members.split(step), known, strict=False)
    ]
    residual, energy = (torch.cat(part) for part in zip(*parts, strict=True))
    explained = (1 - residual / energy[:, None]).reshape(*lead, -1)
    scores = {"matched": explained[..., 0], "mismatched": explained[..., 1 : 1 + DRAWS].mean(dim=-1)}
    if truth is not None:
        scores |= {"truth": explained[..., -2], "beyond_truth": explained[..., -1] - explained[..., -2]}
    return scores


def column_sets(
    positions: Tensor, held_out: Tensor, chosen: Tensor, draws: int, seed: int
) -> tuple[Tensor, list[Tensor]]:
    """Return indices of comparable points, and of their matched and mismatched columns (padded with −1)."""
    generator = torch.Generator().manual_seed(seed)
    kept, held = torch.nonzero(~held_out).flatten(), torch.nonzero(held_out).flatten()
    shares = (positions[held][:, None, :] == positions[kept][None, :, :]).any(dim=-1)
    points, matched = [], []
    mismatched: list[list[Tensor]] = [[] for _ in range(draws)]
    for row, point in enumerate(held.tolist()):
        count = int(shares[row].sum())
        if not chosen[point] or not 0 < count <= len(kept) - count:
            continue
        points.append(point)
        matched.append(kept[shares[row]])
        others = torch.nonzero((positions[held] != positions[point]).all(dim=-1)).flatten()
        for drawn in mismatched:
            order = others[torch.randperm(len(others), generator=generator)].tolist()
            layouts = chain((shares[other] for other in order), [~shares[row]])
            drawn.append(kept[_drawn(layouts, ~shares[row], count, generator)])
    sets = [torch.nn.utils.rnn.pad_sequence(rows, True, -1) for rows in (matched, *mismatched)] if points else []
    return torch.tensor(points, dtype=torch.long), sets or [torch.zeros(0, 0, dtype=torch.long)] * (1 + draws)


def _drawn(layouts: Iterable[Tensor], allowed: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return the indices of `count` allowed columns, taken from the first layout, then the second, and so on."""
    taken = torch.zeros_like(allowed)
    for layout in layouts:
        new = torch.nonzero(layout & allowed & ~taken).flatten()
        taken[new[torch.randperm(len(new), generator=generator)[: count - int(taken.sum())]]] = True
        if int(taken.sum()) == count:
            break
    return torch.nonzero(taken).flatten()


def _residuals(outputs: Tensor, memories: Tensor, sets: list[Tensor], truth: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return residuals `(member, set)` for each set, the true image and both, and the outputs' energy `(member,)`."""
    gram, products = memories @ memories.mT, outputs @ memories.mT
    energy = outputs.square().sum(dim=(-2, -1))
    problems = [(*_gathered(gram, products, columns), columns) for columns in sets]
    explained = [_explained(matrix, vector) for matrix, vector, _ in problems]
    if truth is not None:
        matrix, vector, columns = problems[0]
        power, product = truth.square().sum(dim=-1), (outputs * truth).sum(dim=-1)
        _, cross = _gathered(gram, truth @ memories.mT, columns)
        explained.append(_explained(power[:, None, None].expand(1, -1, 1, 1), product[..., None]))
        bottom = torch.cat([cross, power[None, :, None].expand(len(cross), -1, 1)], dim=-1)
        matrix = torch.cat([torch.cat([matrix, cross[..., None]], dim=-1), bottom[..., None, :]], dim=-2)
        explained.append(_explained(matrix, torch.cat([vector, product[..., None]], dim=-1)))
    return energy[:, None] - torch.stack(explained, dim=-1), energy


def _gathered(gram: Tensor, products: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """Return the Gram matrices and products of each point's columns; padding is 0."""
    present, index = columns >= 0, columns.clamp(min=0)
    matrix = gram[:, index[:, :, None], index[:, None, :]] * (present[:, :, None] & present[:, None, :])
    return matrix, products.gather(-1, index.expand(len(products), -1, -1)) * present


def _explained(gram: Tensor, products: Tensor) -> Tensor:
    """Return the energy explained by the best combination, 2 w·c − w·G w, summed over points."""
    gram = gram.expand(len(products), *gram.shape[1:])
    weights = nonnegative_weights(gram, products)
    fitted = (gram @ weights[..., None])[..., 0]
    return (weights * (2 * products - fitted)).sum(dim=(-2, -1))


def stripe_superposition(
    signals: Float[Tensor, "*member point pixel"],
    stripes: Float[Tensor, "factor point pixel"],
    truth: Float[Tensor, "point pixel"],
    chosen: Bool[Tensor, " point"] | None = None,
) -> dict[str, Float[Tensor, "*member"]]:
    """Return the fraction of the outputs explained by their stripes, by the true bump, and by both.

    The stripe for a factor and grid point is the training image of that factor's value alone, minus the background.
    Returns `stripes`, `bump`, `both`, and the shares `stripe_share` and `bump_share` of `both`, per member.

    >>> stripes = torch.tensor([[[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]]])
    >>> scores = stripe_superposition(2 * stripes[0] + stripes[1], stripes, torch.tensor([[0.0, 0.0, 1.0]]))
    >>> {name: round(score.item(), 6) for name, score in scores.items()}
    {'stripes': 1.0, 'bump': 0.0, 'both': 1.0, 'stripe_share': 1.0, 'bump_share': 0.0}
    """
    if chosen is not None:
        signals, stripes, truth = signals[..., chosen, :], stripes[:, chosen], truth[chosen]
    members, lead = signals.reshape(-1, *signals.shape[-2:]).double(), signals.shape[:-2]
    columns = torch.cat([stripes, truth[None]]).double().movedim(0, 1)
    gram, products = (columns @ columns.mT)[None], torch.einsum("mpi,pki->mpk", members, columns)
    energy = members.square().sum(dim=(-2, -1))
    parts = {"stripes": slice(None, -1), "bump": slice(-1, None), "both": slice(None)}
    scores = {
        name: (_explained(gram[..., part, part], products[..., part]) / energy).reshape(lead)
        for name, part in parts.items()
    }
    alone, other, both = scores["stripes"], scores["bump"], scores["both"]
    scores["stripe_share"] = (alone + both - other) / (2 * both)
    scores["bump_share"] = (other + both - alone) / (2 * both)
    return scores


def nonnegative_weights(
    gram: Float[Tensor, "*problem column column"], products: Float[Tensor, "*problem column"]
) -> Float[Tensor, "*problem column"]:
    """Compute the weights w ≥ 0 that minimise ‖s − A w‖² from AᵀA and Aᵀs, in double precision.

    >>> weights = nonnegative_weights(torch.eye(3), torch.tensor([2.0, -1.0, 0.5]))
    >>> [round(weight, 6) for weight in weights.tolist()]
    [2.0, 0.0, 0.5]
    """
    columns = products.shape[-1]
    length = gram.double().diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt()
    inverse = torch.where(length > 0, 1 / torch.where(length > 0, length, 1.0), 0.0)
    scaled = gram.double() * inverse[..., :, None] * inverse[..., None, :]
    scaled = scaled + RIDGE * torch.eye(columns, dtype=torch.float64, device=gram.device)
    targets = products.double() * inverse
    problems = math.prod(products.shape[:-1])  # reshape cannot infer this if there are no columns
    weights = _pivoted(scaled.reshape(problems, columns, columns), targets.reshape(problems, columns))
    return weights.reshape(products.shape) * inverse


def _pivoted(gram: Tensor, targets: Tensor) -> Tensor:
    """Compute non-negative least-squares weights by block principal pivoting; columns must have unit norm.

    Every column that violates the optimality conditions is exchanged; if that stops helping, only the last one is
    exchanged, which cannot cycle.
    """
    problems, columns = targets.shape
    result = torch.zeros_like(targets)
    weights, gradient = torch.zeros_like(targets), -targets
    used = torch.zeros_like(targets, dtype=torch.bool)
    fewest = torch.full((problems,), columns + 1, device=targets.device)
    patience = torch.full((problems,), PATIENCE, device=targets.device)
    open_problems = torch.arange(problems, device=targets.device)
    slack = -TOLERANCE * targets.abs().amax(dim=-1, keepdim=True) if columns else targets
    for _ in range(PIVOTS):
        wrong = torch.where(used, weights < slack, gradient < slack)
        count = wrong.sum(dim=-1)
        result[open_problems] = weights
        left = torch.nonzero(count).flatten()
        if not len(left):
            return result.clamp(min=0)
        open_problems, gram, targets, slack = open_problems[left], gram[left], targets[left], slack[left]
        wrong, count, used, fewest, patience = wrong[left], count[left], used[left], fewest[left], patience[left]
        better = count < fewest
        fewest = torch.where(better, count, fewest)
        patience = torch.where(better, PATIENCE, patience - 1)
        last = wrong & (wrong.flip(-1).cumsum(dim=-1).flip(-1) == 1)
        used = used ^ torch.where((patience >= 0)[:, None], wrong, last)
        weights = _least_squares(gram, targets, used)
        gradient = (gram @ weights[..., None])[..., 0] - targets
    result[open_problems] = _one_by_one(gram, targets)
    return result.clamp(min=0)


def _least_squares(gram: Tensor, targets: Tensor, used: Tensor) -> Tensor:
    """Return least-squares weights for the used columns, and 0 for the others."""
    inside = used[:, :, None] & used[:, None, :]
    matrix = torch.where(inside, gram, 0.0) + torch.diag_embed((~used).to(gram.dtype))
    factor = torch.linalg.cholesky_ex(matrix).L
    solved = torch.cholesky_solve(torch.where(used, targets, 0.0)[..., None], factor)[..., 0]
    return torch.where(used, solved, 0.0)


def _one_by_one(gram: Tensor, targets: Tensor) -> Tensor:
    """Return the weights by scipy's active-set method, from a square root of each Gram matrix."""
    from scipy.optimize import nnls  # half a second

    values, vectors = torch.linalg.eigh(gram.cpu())
    roots = values.clamp(min=RIDGE).sqrt()[..., None]  # rounding makes some negative
    turned = vectors.mT @ targets.cpu()[..., None] / roots
    problems = zip((roots * vectors.mT).numpy(), turned[..., 0].numpy(), strict=True)
    weights = np.array([nnls(matrix, vector, maxiter=100 * len(vector))[0] for matrix, vector in problems])
    return torch.from_numpy(weights).to(targets)
