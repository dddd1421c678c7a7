"""Whether activations are factorized: blocks of coordinates, each of one factor, up to an invertible map (Eq. 23–27).

Conventions
-----------
Activations are given over a whole factor grid, points in the grid's order; some combinations are held out. They are
reduced to the directions that hold most of their variance (Eq. 23, `projections`), and mapped to as many coordinates,
each of which belongs to the block of one factor: by a linear map (Eq. 24, `separation`) or by a flow that starts from
it (Eq. 25–27, `flows`, `straightening`). Everything is fitted to the kept points alone.

The score is the share of the coordinates' variance at the held-out points that is predicted from their own factor
alone; `recovered` is the share of the activations there that the predicted coordinates give back through the inverse
map. Both are means over whitened directions of R², at most 1, and 0 or less where nothing is predicted. The p-value is
that of the score among those of representations whose activations were dealt to other combinations, within the kept
points and within the held-out ones. A test is passed with a score and a recovered share of at least 0.9, p ≤ 0.05, and
a coordinate for every factor.

Why held-out points decide: general enough a map T straightens every smooth injective representation, so that all of
them are factorized by the paper's definition, and a flow with as many parameters as there are points straightens
anything at the points it was trained on. What is called entangled is therefore that information about a factor was lost
(no map brings it back), or that the map does not extend to combinations that were not seen.

Known answers: concatenated codes of single factors, linearly mixed, pass both tests; behind an invertible nonlinearity
only the second; a random vector per combination and functions of x + y or x·y alone pass neither.
"""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from recombine.checks import checked, whole_number
from recombine.theory.block_tests import Activations, Factorization, block_test
from recombine.theory.projections import SHARE
from recombine.theory.straightening import STEPS

PERMUTATIONS, TRAINED_PERMUTATIONS = 99, 19
"""Of the linear test, and of the nonlinear one, whose permuted representations are trained too."""


@checked
def linear_factorization(
    features: Float[Tensor, "*member point feature"],
    shape: tuple[int, ...],
    held_out: Bool[Tensor, " point"] | None = None,
    *,
    share: float = SHARE,
    largest: int | None = None,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Factorization:
    """Whether a linear map takes activations to blocks of one factor each (Eq. 24).

    Parameters
    ----------
    features
        Activations over the grid's points, in its order.
    shape
        Number of values of each factor.
    held_out
        Combinations to predict; a random fifth by default, every value of every factor being kept.
    share
        Of the variance, that the directions tested hold.
    largest
        Directions at most; 32 by default.
    permutations
        Of the p-value, which is at least 1 / (1 + permutations).
    seed
        Of what is held out and of the permutations.

    Returns
    -------
    Factorization
        Score, verdict, blocks and map of each member.

    Examples
    --------
    >>> import torch
    >>> x, y = torch.meshgrid(torch.arange(6.0), torch.arange(6.0), indexing="ij")
    >>> both = torch.stack([torch.stack([x + y, x - y], dim=-1), torch.stack([x * y, x - y], dim=-1)])
    >>> linear_factorization(both.flatten(1, 2), (6, 6)).passes.tolist()
    [True, False]
    """
    activations = Activations.of(features, shape, held_out, share, largest, seed)
    whole_number("permutations", permutations, at_least=0)
    return block_test(activations, activations.design(), permutations, seed)


@checked
def nonlinear_factorization(
    features: Float[Tensor, "*member point feature"],
    shape: tuple[int, ...],
    held_out: Bool[Tensor, " point"] | None = None,
    *,
    share: float = SHARE,
    largest: int | None = None,
    permutations: int = TRAINED_PERMUTATIONS,
    steps: int = STEPS,
    seed: int = 0,
) -> Factorization:
    """Whether an invertible map takes activations to blocks of one factor each (Eq. 25–27).

    Parameters
    ----------
    features
        Activations over the grid's points, in its order.
    shape
        Number of values of each factor.
    held_out
        Combinations to predict; a random fifth by default, every value of every factor being kept.
    share
        Of the variance, that the directions tested hold.
    largest
        Directions at most; 32 by default.
    permutations
        Of the p-value, for members that would pass otherwise; each is trained like the activations themselves. With
        fewer than 19 nothing can pass.
    steps
        Of training, at most.
    seed
        Of what is held out, of the permutations and of the flow.

    Returns
    -------
    Factorization
        Score, verdict, blocks and map of each member.

    Notes
    -----
    The definition asks for a map, not for one that can be found: a smooth injective representation always has one. This
    test asks for one that a small flow learns from the kept combinations and that holds at the others, and where points
    are few it misses some. Of a hundred codes of two dimensions per factor behind a strong nonlinearity, it finds 97 on
    a 16 × 16 grid, 95 on 12 × 12 and 38 on 8 × 8 where they are smooth in the factors; 93 on 24 × 24, 84 on 16 × 16 and
    62 on 12 × 12 where every value has a random code. Failing it on a small grid says little, therefore; passing does.

    Examples
    --------
    >>> import torch
    >>> x, y = torch.meshgrid(torch.linspace(-1, 1, 8), torch.linspace(-1, 1, 8), indexing="ij")
    >>> bent = torch.stack([x + y + (x - y) ** 2, x - y], dim=-1).flatten(0, 1)
    >>> straightened = nonlinear_factorization(bent, (8, 8), steps=100, permutations=0)
    >>> [round(own.score.item(), 1) for own in (linear_factorization(bent, (8, 8)), straightened)]
    [0.5, 1.0]
    """
    activations = Activations.of(features, shape, held_out, share, largest, seed)
    whole_number("permutations", permutations, at_least=0)
    whole_number("steps", steps)
    return block_test(activations, activations.design(), permutations, seed, steps)
