"""Activations over all angles in two dimensions: UMAP (the paper's) where it is installed, or principal components."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

NEIGHBOURS, FEWEST_NEIGHBOURS = 0.05, 15
"""Share of all angles that UMAP looks at around each, and the fewest."""


def embedder() -> tuple[str, Callable[[Tensor], np.ndarray]]:
    """The method that is available, by name, and its function of activations."""
    try:
        mapper = import_module("umap").UMAP
    except (ImportError, AttributeError):
        return "PCA", _principal_components

    def embed(activations: Tensor) -> np.ndarray:
        neighbours = min(len(activations) - 1, max(FEWEST_NEIGHBOURS, round(NEIGHBOURS * len(activations))))
        mapped = mapper(n_neighbors=neighbours, n_components=2, random_state=0, n_jobs=1)
        return np.asarray(mapped.fit_transform(activations.cpu().numpy()))

    return "UMAP", embed


def _principal_components(activations: Float[Tensor, "point feature"]) -> np.ndarray:
    """The two leading ones, each with its largest entry positive."""
    left, lengths, _ = torch.linalg.svd(activations - activations.mean(dim=0), full_matrices=False)
    scores = left[:, :2] * lengths[:2]
    extreme = scores.gather(0, scores.abs().argmax(dim=0, keepdim=True))
    return (scores * extreme.sign()).cpu().numpy()
