"""Networks whose verdict is known: what they draw over the grid is written down, not learnt."""

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import torch
import xarray
from torch import Tensor

from recombine.metrics import extreme_pixel, hits, interior
from recombine.papers.forced_rendering.encodings import BOX
from recombine.papers.forced_rendering.superposition import (
    CNN_ARM,
    SUPERPOSITION_COORDS,
    SUPERPOSITION_DIMS,
    signal_scores,
    true_signals,
)
from recombine.tasks import BumpTask

TASK = BumpTask(size=20)
"""Smaller ones have an interior of few points, all of them in nearly the same rows and columns."""
SEEDS = 8
"""As many as a verdict needs."""
LEARNT = {"id_mse": 1e-5, "id_over_blank": 0.01, "id_accuracy": 1.0}
"""Scores of a network that learnt what it was trained on."""

Weights = Callable[[int, torch.Generator], Tensor]


def composer(generator: torch.Generator) -> Tensor:
    """Every bump right, but for a little noise."""
    truth = true_signals(TASK)
    return truth + 1e-3 * torch.randn(truth.shape, generator=generator)


def superposer(weights: Weights) -> Callable[[torch.Generator], Tensor]:
    """Kept bumps right; elsewhere a weighted sum of the training images that share x or y."""

    def drawn(generator: torch.Generator) -> Tensor:
        truth, points, kept = true_signals(TASK), TASK.grid.points, torch.nonzero(~TASK.held_out).flatten()
        outputs = truth.clone()
        for point in torch.nonzero(TASK.held_out).flatten():
            sharing = kept[(points[kept] == points[point]).any(dim=1)]
            outputs[point] = weights(len(sharing), generator) @ truth[sharing]
        return outputs

    return drawn


def equal(count: int, generator: torch.Generator) -> Tensor:
    """All of them alike, as bright for every seed as chance has it."""
    return torch.full((count,), 0.2 + 0.2 * torch.rand(1, generator=generator).item())


def sparse(count: int, generator: torch.Generator) -> Tensor:
    """Three of them."""
    weights = torch.zeros(count)
    weights[torch.randperm(count, generator=generator)[:3]] = 0.5 + 0.5 * torch.rand(3, generator=generator)
    return weights


def random_features(generator: torch.Generator) -> Tensor:
    """Kept bumps right; elsewhere a smooth random function of position, without any structure of x and y."""
    outputs = true_signals(TASK)
    slopes, phases = 0.4 * torch.randn(2, 64, generator=generator), 2 * torch.pi * torch.rand(64, generator=generator)
    features = torch.cos(TASK.grid.points.float() @ slopes + phases)
    drawn = 0.05 * features @ torch.randn(64, outputs.shape[1], generator=generator)
    return torch.where(TASK.held_out[:, None], drawn, outputs)


def unlearnt(generator: torch.Generator) -> Tensor:
    """Next to nothing anywhere."""
    return 0.05 * torch.randn(true_signals(TASK).shape, generator=generator)


NETWORKS: Mapping[str, Callable[[torch.Generator], Tensor]] = {
    "composer": composer,
    "superposer, equal weights": superposer(equal),
    "superposer, sparse weights": superposer(sparse),
    "random features": random_features,
    "did not learn": unlearnt,
}


def run_scores(signals: Tensor) -> dict[str, np.ndarray]:
    """The scores that runs have, of `[member, point, pixel]`, and those of the hold-out's interior."""
    truth, held = true_signals(TASK), TASK.held_out
    error, blank = (signals - truth).square().mean(dim=-1), truth.square().mean(dim=-1)
    drawn = signals.flatten(0, 1).unflatten(1, TASK.image_shape)
    hit = hits(extreme_pixel(drawn), TASK.grid.points.repeat(len(signals), 1)).reshape(error.shape)
    scores = {}
    for name, region in (("id", ~held), ("ood", held), ("interior", interior(held, TASK.grid.shape))):
        scores[f"{name}_mse"] = error[:, region].mean(dim=1).numpy()
        scores[f"{name}_over_blank"] = scores[f"{name}_mse"] / blank[region].mean().item()
        scores[f"{name}_accuracy"] = hit[:, region].double().mean(dim=1).numpy()
    return scores


@cache
def planted_datasets(kind: str) -> dict[str, xarray.Dataset]:
    """Datasets of the encodings and superposition studies with networks of one kind, bump and rate code."""
    codes = ("bump", "rate")
    draws = [torch.Generator().manual_seed(seed) for seed in range(len(codes) * SEEDS)]
    signals = torch.stack([NETWORKS[kind](generator) for generator in draws])
    scores, measured = run_scores(signals), signal_scores(TASK, signals)

    def table(values: np.ndarray, *inner: str) -> tuple[tuple[str, ...], np.ndarray]:
        return ("encoding", "seed", *inner), values.reshape(len(codes), SEEDS, *values.shape[1:])

    plain = xarray.Dataset({name: table(values) for name, values in scores.items()}, coords={"encoding": list(codes)})
    measured |= {"averaged": measured["memorised"], "averaged_null": measured["memorised_null"]}  # no network to ask
    more = {name: table(value.numpy(), *SUPERPOSITION_DIMS.get(name, ())) for name, value in measured.items()}
    distance = {f"distance_{name}": plain[f"ood_{name}"].expand_dims(distance=[1], axis=-1)
                for name in ("over_blank", "accuracy")}  # fmt: skip
    return {
        "encodings": plain.assign(distance).expand_dims(holdout=[BOX]),
        "superposition": plain.assign(more).assign_coords(SUPERPOSITION_COORDS).expand_dims(decoder=[CNN_ARM]),
    }
