"""Every figure: which studies' Datasets it is drawn from, how, and its caption."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from recombine.errors import InvalidValue, listed
from recombine.figures.conventions import conventions_caption, conventions_figure
from recombine.figures.depth import (
    depth_caption,
    depth_figure,
    drawings_caption,
    drawings_figure,
    profiles_caption,
    profiles_figure,
    volumes_caption,
    volumes_figure,
    wrapping_caption,
    wrapping_figure,
)
from recombine.figures.encodings import encodings_caption, encodings_figure
from recombine.figures.extras import (
    attention_caption,
    attention_figure,
    encoder_caption,
    encoder_figure,
    encoding_width_caption,
    encoding_width_figure,
    holdouts_caption,
    holdouts_figure,
    regimes_caption,
    regimes_figure,
)
from recombine.figures.kernels import kernels_caption, kernels_figure
from recombine.figures.mlp import mlp_profiles_caption, mlp_profiles_figure, mlp_volumes_caption, mlp_volumes_figure
from recombine.figures.penalties import embeddings_caption, embeddings_figure, penalties_caption, penalties_figure
from recombine.figures.rotation import rotation_caption, rotation_figure
from recombine.figures.stripes import percents_caption, percents_figure, stripes_caption, stripes_figure
from recombine.figures.threshold import threshold_caption, threshold_figure
from recombine.figures.tuning import tuning_caption, tuning_figure


@dataclass(frozen=True)
class FigureSpec:
    """One figure of the paper, or an extra."""

    name: str
    title: str
    studies: tuple[str, ...]
    """Whose Datasets `draw` and `caption` take, in this order."""
    draw: Callable[..., Any]
    caption: Callable[..., str]


FIGURES: dict[str, FigureSpec] = {
    spec.name: spec
    for spec in (
        FigureSpec(
            "fig1",
            "Disentangled encodings do not compose",
            ("encodings", "superposition"),
            encodings_figure,
            encodings_caption,
        ),
        FigureSpec(
            "fig2", "Probes, factorization and volume along the stages", ("depth",), depth_figure, depth_caption
        ),
        FigureSpec(
            "fig3",
            "Remedy A: rendered embeddings and their penalties",
            ("penalties",),
            penalties_figure,
            penalties_caption,
        ),
        FigureSpec("fig4", "Remedy B: stripes", ("stripes", "threshold", "tuning"), stripes_figure, stripes_caption),
        FigureSpec(
            "fig5", "Factor space, wrapped into the space of images", ("depth",), wrapping_figure, wrapping_caption
        ),
        FigureSpec(
            "fig6", "All embeddings, without and with penalties", ("penalties",), embeddings_figure, embeddings_caption
        ),
        FigureSpec(
            "fig7",
            "All stripes, and drawings for stripes and p % of bumps",
            ("stripes",),
            percents_figure,
            percents_caption,
        ),
        FigureSpec(
            "fig8",
            "Similarity, distance and overlap of all answers",
            ("superposition",),
            kernels_figure,
            kernels_caption,
        ),
        FigureSpec("fig9", "A gap in rotation", ("rotation",), rotation_figure, rotation_caption),
        FigureSpec("fig10", "Held-out drawings by CNN depth", ("depth",), drawings_figure, drawings_caption),
        FigureSpec("fig11", "Volume element of CNNs, all depths", ("depth",), volumes_figure, volumes_caption),
        FigureSpec(
            "fig12", "Probes and factorization of CNNs, all depths", ("depth",), profiles_figure, profiles_caption
        ),
        FigureSpec("fig13", "Volume element of MLPs", ("mlp",), mlp_volumes_figure, mlp_volumes_caption),
        FigureSpec("fig14", "Probes and factorization of MLPs", ("mlp",), mlp_profiles_figure, mlp_profiles_caption),
        FigureSpec("fig15", "Tuning of stripe-trained networks", ("tuning",), tuning_figure, tuning_caption),
        FigureSpec("threshold", "Data threshold by protocol", ("threshold",), threshold_figure, threshold_caption),
        FigureSpec("regimes", "Kernel regimes", ("regimes",), regimes_figure, regimes_caption),
        FigureSpec(
            "conventions",
            "Paper's conventions against the published scripts'",
            ("encodings", "depth"),
            conventions_figure,
            conventions_caption,
        ),
        FigureSpec("encoder", "The other direction: image to code", ("encoder",), encoder_figure, encoder_caption),
        FigureSpec(
            "attention", "Transformers and coordinate MLPs", ("attention",), attention_figure, attention_caption
        ),
        FigureSpec("holdouts", "Shape and size of the hold-out", ("holdouts",), holdouts_figure, holdouts_caption),
        FigureSpec(
            "width", "Width of the bump code", ("encoding_width",), encoding_width_figure, encoding_width_caption
        ),
    )
}


def full_name(word: str) -> str:
    """How a figure is called that someone writes as `4` or `Fig4`."""
    return f"fig{word}" if word.isdigit() else word.lower()


def figure_named(name: str) -> FigureSpec:
    """A figure by name or number: `fig4`, `4`, `Fig4`, `threshold`."""
    full = full_name(name)
    if full not in FIGURES:
        raise InvalidValue("figure", name, listed(FIGURES))
    return FIGURES[full]
