"""Angles in two dimensions: by UMAP, as in the paper, where it is installed; and by principal components.

Both are computed where a figure is drawn, from scores on principal components (`reduction`). No torch here.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import numpy as np

NEIGHBOURS, FEWEST_NEIGHBOURS = 0.05, 15
"""Share of all angles that UMAP looks at around each, and the fewest."""
UMAP, COMPONENTS = "UMAP", "PC"
Embed = Callable[[np.ndarray], np.ndarray]


def embeddings() -> dict[str, Embed]:
    """The methods that are available by name, the paper's first."""
    try:
        mapper = import_module("umap").UMAP
    except (ImportError, AttributeError):
        return {COMPONENTS: first_components}

    def embed(scores: np.ndarray) -> np.ndarray:
        neighbours = min(len(scores) - 1, max(FEWEST_NEIGHBOURS, round(NEIGHBOURS * len(scores))))
        mapped = mapper(n_neighbors=neighbours, n_components=2, random_state=0, n_jobs=1)
        return np.asarray(mapped.fit_transform(scores))

    return {UMAP: embed, COMPONENTS: first_components}


def first_components(scores: np.ndarray) -> np.ndarray:
    """The two leading ones."""
    return scores[:, :2]
