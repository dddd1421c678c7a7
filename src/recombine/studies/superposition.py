"""Do held-out answers superpose what was memorised, and with which kernel? (§3.3, Fig. 1 d–e, 8; claims C2, C3, C14)

The bump- and rate-coded networks of the encodings study. Gram matrices are kept for every second grid value along each
axis where the grid is larger than `MATRIX_SIDE`, kept combinations first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from recombine.claims import CLAIMS, Judgement
from recombine.metrics import (
    averaged_codes,
    averaged_prediction,
    block_contrast,
    gram_matrix,
    kernel_agreement,
    memorised_prediction,
    superposition_scores,
    theoretical_kernel,
)
from recombine.store import Run
from recombine.studies.base import Arm, Study, Trials, register
from recombine.studies.presets import Preset
from recombine.studies.reading import base_attributes, first_seed, per_seed, sample_points, tabulate

if TYPE_CHECKING:
    import xarray

KERNELS = ("cosine", "l2", "overlap")
JUDGED_KERNELS = ("overlap", "cosine")
"""The paper's Fig. 1e is of pixel overlap; cosine similarity has no threshold."""
FORMS = ("averaged", "memorised")
MATRIX_SIDE = 16
"""Grids larger than this along an axis are thinned before a matrix is kept."""


@register
class SuperpositionStudy(Study):
    """What the failing networks draw instead."""

    name: ClassVar[str] = "superposition"
    question: ClassVar[str] = "What does a network that fails to compose draw instead?"
    claims: ClassVar[tuple[str, ...]] = ("C2", "C3", "C14")

    def arms(self, preset: Preset) -> list[Arm]:
        return [Arm((encoding,), preset.spec(encoding=encoding)) for encoding in ("bump", "rate")]

    def measure(self, trials: Trials) -> xarray.Dataset:
        inner = {"gram": ("kernel", "row", "column"), "panel_image": ("panel", "row_pixel", "column_pixel")}
        pictured = trials.pictured
        result = tabulate(trials, ("encoding",), lambda run: _measured(run, trials.device, run.key in pictured), inner)
        first = trials["bump"][0]
        order, kept = _matrix_order(first)
        positions = first.spec.task.grid.points[order]
        binary = theoretical_kernel("binary", positions[kept:], positions[:kept])
        result = result.assign(
            gram=first_seed(result["gram"]),
            panel_image=first_seed(result["panel_image"]),
            binary=(("held_row", "kept_column"), binary.numpy().astype(np.float32)),
        )
        panels = ["answer", "superposition", "x alone", "y alone", "truth"]
        place = sample_points(first.spec)[0].tolist()
        attributes = {**base_attributes(trials), "kept": kept, "place": place}
        return result.assign_coords(kernel=list(KERNELS), panel=panels).assign_attrs(attributes)

    def judge(self, result: xarray.Dataset) -> list[Judgement]:
        bump = result.sel(encoding="bump")
        learnt = per_seed(bump["id_over_blank"])
        superposed = {
            form: {
                "id_over_blank": learnt,
                "over_truth": per_seed(bump[form] - bump["truth"]),
                "over_null": per_seed(bump[form] - bump[f"{form}_null"]),
            }
            for form in FORMS
        }
        binary = {
            kernel: {
                "id_over_blank": learnt,
                "margin": per_seed(bump[f"{kernel}_margin"]),
                "p_value": per_seed(bump[f"{kernel}_p"]),
            }
            for kernel in JUDGED_KERNELS
        }
        contrast = {
            kernel: {
                "effect": per_seed(
                    result[f"{kernel}_contrast"].sel(encoding="bump")
                    - result[f"{kernel}_contrast"].sel(encoding="rate")
                )
            }
            for kernel in KERNELS
        }
        return [CLAIMS["C2"].judge(superposed), CLAIMS["C3"].judge(binary), CLAIMS["C14"].judge(contrast)]


def _measured(run: Run, device: torch.device, pictured: bool) -> dict[str, Any]:
    task = run.spec.task
    points, held = task.grid.points.to(device), task.held_out.to(device)
    module = run.module().to(device)

    @torch.no_grad()
    def signal(codes: Tensor) -> Tensor:
        return module(codes.float()).flatten(1) - task.background

    codes = task.codes(points)
    drawn, truth = signal(codes), task.render(points).float().flatten(1) - task.background
    averaged = averaged_prediction(signal, codes[held], task.code_sizes, codes[~held])
    scores = superposition_scores(drawn, points, held, truth=truth, averaged=averaged)
    found: dict[str, Any] = {name: value.item() for name, value in scores.items()}
    found["id_over_blank"] = run.scores["id_over_blank"]
    dark = task.background == 1
    images = drawn + task.background
    for kernel in KERNELS:
        gram = gram_matrix(images, kernel, dark=dark)  # type: ignore[arg-type]
        similarity = -gram if kernel == "l2" else gram
        found[f"{kernel}_contrast"] = block_contrast(similarity, points).item()
        if kernel in JUDGED_KERNELS:
            agreed = kernel_agreement(gram, points, held)
            rivals = [v for name, v in agreed.agreement.items() if name not in ("binary", "gaussian_sum")]
            found[f"{kernel}_p"] = agreed.p_value.item()
            found[f"{kernel}_margin"] = (agreed.agreement["binary"] - torch.stack(rivals).amax()).item()
            found |= {f"{kernel}_{name}": value.item() for name, value in agreed.agreement.items()}
    if pictured:
        order, _ = _matrix_order(run)
        grams = [gram_matrix(images[order], kernel, dark=dark).cpu().numpy() for kernel in KERNELS]  # type: ignore[arg-type]
        found["gram"] = np.stack(grams).astype(np.float32)
        found["panel_image"] = _panels(run, signal, codes, drawn, truth, held)
    return found


def _panels(run: Run, signal: Any, codes: Tensor, drawn: Tensor, truth: Tensor, held: Tensor) -> np.ndarray:
    """Fig. 1d at one held-out place: the answer, the memories' sum, each factor with the other averaged, the truth."""
    task = run.spec.task
    at = task.grid.nearest(sample_points(run.spec)[:1])
    parts = [signal(part[at]) for part in averaged_codes(codes, task.code_sizes, codes[~held])]
    among_held = (torch.nonzero(held.cpu()).flatten() == at).nonzero().flatten()
    memories = memorised_prediction(drawn, task.grid.points.to(drawn.device), held)[among_held]
    rows = [drawn[at], _at_best_scale(drawn[at], memories), *parts, truth[at]]
    return torch.cat([row.cpu() for row in rows]).unflatten(1, task.image_shape).numpy()


def _at_best_scale(answer: Tensor, prediction: Tensor) -> Tensor:
    return prediction * ((answer * prediction).sum() / prediction.square().sum().clamp(min=1e-12))


def _matrix_order(run: Run) -> tuple[Tensor, int]:
    """Grid points of a kept matrix, kept combinations first, and how many of them are kept."""
    task = run.spec.task
    step = 2 if max(task.grid.shape) > MATRIX_SIDE else 1
    chosen = (task.grid.indices % step == 0).all(dim=1)
    kept, held = (torch.nonzero(chosen & region).flatten() for region in (~task.held_out, task.held_out))
    return torch.cat([kept, held]), len(kept)
