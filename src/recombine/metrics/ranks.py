"""Ranks of embeddings and Gram matrices (Eq. 1, 9; Fig. 3b, 6).

- `effective_rank` of a spectrum λ̃ that sums to 1 is exp(H(λ̃)): 1 for one mode, r for r equal modes.
- `schmidt_spectrum` (operator-Schmidt values) of a two-factor Gram matrix K[(x,y),(x′,y′)]: its singular values when
  reshaped to [(x,x′),(y,y′)], scaled to unit norm. A product kernel k_x ⊗ k_y has one non-zero value.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from recombine.metrics.gram_matrices import gram_matrix
from recombine.metrics.registry import Column, Need, Stage, stage_metric
from recombine.theory.projections import refuse_not_finite
from recombine.theory.ranks import over_pairs

SCHMIDT_MODES = 16
"""Number of Schmidt values per stage."""


def effective_rank(spectrum: Float[Tensor, "*shape mode"]) -> Float[Tensor, "*shape"]:
    """Return the exponential of the entropy of a non-negative spectrum, which is normalised first.

    >>> round(effective_rank(torch.tensor([2.0, 2.0, 0.0])).item(), 6)
    2.0
    """
    share = spectrum.double() / spectrum.double().sum(dim=-1, keepdim=True)
    return torch.exp(-torch.special.xlogy(share, share).sum(dim=-1))


def matrix_effective_rank(images: Float[Tensor, "*shape y x"]) -> Float[Tensor, "*shape"]:
    """Return the effective rank of the squared singular values of matrices, such as images.

    >>> round(matrix_effective_rank(torch.eye(3)).item(), 6)
    3.0
    """
    return effective_rank(torch.linalg.svdvals(images.double()).square())


def schmidt_spectrum(
    gram: Float[Tensor, "*member point point"], shape: tuple[int, ...]
) -> Float[Tensor, "*member mode"]:
    """Return the operator-Schmidt values of a Gram matrix over a two-factor grid, in descending order, with unit norm.

    >>> [round(value, 6) for value in schmidt_spectrum(torch.eye(4), (2, 2)).tolist()]
    [1.0, 0.0, 0.0, 0.0]
    """
    refuse_not_finite("gram", gram)
    pairs, sizes = over_pairs(gram, shape)
    # a GPU takes several times as long for singular values of matrices of this size
    values = torch.linalg.svdvals(pairs.unflatten(-1, sizes).cpu()).to(gram.device)
    return values / values.norm(dim=-1, keepdim=True)


@stage_metric(
    "effective_rank",
    Column(
        "effective_rank", "effective rank of the stage's covariance over the grid", "Eq. 9", heading="effective rank",
        form=".1f",
    ),
    in_studies=False,
)  # fmt: skip
def evaluate_effective_rank(stage: Stage) -> dict[str, Tensor]:
    return {"effective_rank": effective_rank(torch.linalg.eigvalsh(stage.gram).clamp(min=0))}


@stage_metric(
    "schmidt_rank",
    Column(
        "schmidt_rank", "effective number of products of single-factor kernels in the stage's cosine kernel", "Eq. 1",
        heading="Schmidt rank", form=".2f",
    ),
    needs=(Need.TWO_FACTORS,),
    in_studies=False,
)  # fmt: skip
def evaluate_schmidt_rank(stage: Stage) -> dict[str, Tensor]:
    spectrum = schmidt_spectrum(gram_matrix(stage.features, "cosine"), stage.grid.shape)
    return {"schmidt_rank": effective_rank(spectrum.square())}


@stage_metric(
    "schmidt",
    Column("schmidt", "operator-Schmidt values of the stage's Gram matrix, largest first", "Eq. 1", dims=("mode",)),
    needs=(Need.TWO_FACTORS,),
    in_studies=False,
)
def evaluate_schmidt(stage: Stage) -> dict[str, Tensor]:
    spectrum = schmidt_spectrum(stage.grams[1], stage.grid.shape)
    return {"schmidt": torch.nn.functional.pad(spectrum, (0, SCHMIDT_MODES))[..., :SCHMIDT_MODES]}
