"""Do held-out outputs superpose memorised images, and with which kernel? (§3.3, Fig. 1 d–e, 8)

The networks are the bump- and rate-coded ones of the encodings study, plus a smaller number with other codes or depths,
dark bumps or an MLP. All quantities are measured in the interior of the hold-out unless stated otherwise in their name:

- `matched`, `mismatched`: variance explained by the best non-negative combination of training images that share x or
  y, and of as many images that share neither; `own_…`: the same, using the network's outputs as images; `truth`,
  `beyond_truth`: variance explained by the true image, and additional variance explained by matching images;
- `memorised`, `averaged`: variance explained by equal-weight matching outputs and by D(x̄) + D(ȳ); `…_null`: chance;
- `kernel_or`, `kernel_product`, `kernel_radial`, `kernel_sum`: correlation between a kernel family and each of the
  `SIMILARITIES` between held-out and kept outputs, or held-out ones at most `NEAR` steps apart; `kernel_p`: p-value of
  `or` against shifted kernels (cosine only);
- `block_contrast`: block contrast for each of the `CONTRASTS`;
- `several_peaks`, `peak_count`, `centred_peaks`, `aligned`, `aligned_chance`, `away_aligned`, `away_chance`: see
  `recombine.metrics.errors`; one value for each of the `PEAKS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
import xarray
from torch import Tensor

from recombine import metrics
from recombine.metrics import block_contrast, gram_matrix, kernel_families, nonnegative_superposition
from recombine.metrics.errors import PEAK_SCORES, PROMINENCE
from recombine.papers.forced_rendering.mlp import MLPSettings
from recombine.papers.forced_rendering.presets import ALL_CODES, CODES
from recombine.reproduction.measuring import TRAINED, Batch, Measured, base_attributes, sample_points, tabulate
from recombine.reproduction.preset import AnyNumber
from recombine.reproduction.study import Arm, Study, Trials
from recombine.tasks import Task

CNN_ARM, MLP_ARM, DARK = "CNN", "MLP", "CNN, dark bumps"
THRESHOLDS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7)
"""Fractions of a bump's height above which a pixel counts as overlap; the published scripts use about 0.7."""
SHOWN_THRESHOLD = 0.1
"""Threshold in figures. The scripts' threshold leaves one pixel of a bump and nothing of most held-out outputs."""


def overlap(threshold: float) -> str:
    """Return the name of the pixel overlap at a threshold."""
    return f"overlap above {threshold:g}"


COSINE, DISTANCE, ALL_ROWS, STANDARDISED = "cosine", "L2 distance", "cosine, all rows", "cosine, rows standardised"
NEAR = 3
"""Largest distance of held-out points whose outputs tell OR from sum kernels, in grid steps along each factor."""


def near(similarity: str, within: int = NEAR) -> str:
    """Return the name of a similarity between held-out outputs that are at most so many steps apart."""
    return f"{similarity}, held-out points within {within:g} steps"


SIMPLE = (COSINE, DISTANCE, *map(overlap, THRESHOLDS))
SIMILARITIES = (*SIMPLE, ALL_ROWS, STANDARDISED, *map(near, SIMPLE))
"""Similarities with which kernels are compared, over rows in the interior unless the name says otherwise."""
FAMILIES = ("or", "product", "radial", "sum")
"""Families of kernels; `or` is the smoothed binary factorized kernel."""
FULL_MATRIX = "cosine, full matrix"
CONTRASTS = (*SIMPLE, FULL_MATRIX)
"""Similarities whose block contrast is measured, between held-out and kept outputs unless stated otherwise."""
KERNELS = {
    "cosine": "cosine similarity", "l2": "L2 distance", "overlap": f"pixel overlap above {SHOWN_THRESHOLD:g}"
}  # fmt: skip
"""Kernels shown in figures, mapped to their titles."""
OUTPUT, SUM, X_ALONE, Y_ALONE, TRUTH = PANELS = ("answer", "superposition", "x alone", "y alone", "truth")
"""Names of the images of Fig. 1d in the Dataset."""

SUPERPOSITION_METRICS = (
    "averaged_prediction", "block_contrast", "gram_matrix", "interior", "kernel_families", "nonnegative_superposition",
    "peak_scores", "superposition_scores",
)  # fmt: skip
"""Metrics used by `superposition_scores_of`."""
PEAK_NAMES = {"several": "several_peaks", "count": "peak_count", "centred": "centred_peaks"}
OWN_MAXIMUM, TRUE_HEIGHT = "the output's own maximum", "the true bump's height"
PEAK_THRESHOLDS = {OWN_MAXIMUM: (0.1, 0.2, 0.3, 0.4, 0.5), TRUE_HEIGHT: (0.1, 0.25)}
"""Thresholds above which a maximum counts as a peak, by the height that they are fractions of."""


def peaks(threshold: float, of: str, prominence: float = PROMINENCE) -> str:
    """Return the name of the peaks above a threshold, with a prominence that is relative to the same height."""
    return f"above {threshold:g} of {of}, prominence {prominence:g}"


PEAKS = [peaks(threshold, of) for of, thresholds in PEAK_THRESHOLDS.items() for threshold in thresholds]
SUPERPOSITION_DIMS = {
    **{f"kernel_{family}": ("similarity",) for family in FAMILIES},
    "block_contrast": ("blocks",),
    **{PEAK_NAMES.get(name, name): ("peaks",) for name in PEAK_SCORES},
}
SUPERPOSITION_COORDS = {"similarity": list(SIMILARITIES), "blocks": list(CONTRASTS), "peaks": PEAKS}


def superposed(networks: xarray.Dataset) -> xarray.DataArray:
    """Return the variance explained by training images that share x or y, minus that by images that share neither."""
    return networks["matched"] - networks["mismatched"]


def signals(batch: Batch, codes: Tensor) -> Tensor:
    """Return outputs minus the background for rows of codes, `[member, row, pixel]`."""
    return batch.forward(codes.float()).flatten(2) - batch.task.background


def true_signals(task: Task) -> Tensor:
    """Return true images minus the background at every grid point, `[point, pixel]`."""
    return task.render(task.grid.points).float().flatten(1) - task.background


def superposition_scores_of(batch: Batch) -> dict[str, np.ndarray]:
    """Return the module's scores for finished runs, `[member]` followed by the dimensions in `SUPERPOSITION_DIMS`."""
    task, codes, outputs = batch.task, batch.task.codes(batch.task.grid.points), partial(signals, batch)
    # D(x̄) + D(ȳ): the sum over factors of the output with all other factors averaged out
    averaged = metrics.averaged_prediction(outputs, codes, task.code_sizes, codes[~task.held_out])
    scores = signal_scores(task, outputs(codes), averaged)
    return {name: value.float().cpu().numpy() for name, value in scores.items()}


def signal_scores(task: Task, drawn: Tensor, averaged: Tensor | None = None) -> dict[str, Tensor]:
    """Return the module's scores from outputs minus the background (by member, point and pixel) and D(x̄) + D(ȳ)."""
    device, shape = drawn.device, task.grid.shape
    points, held, truth = task.grid.points.to(device), task.held_out.to(device), true_signals(task).to(device)
    inner, dark = metrics.interior(held, shape), task.background == 1
    scores = nonnegative_superposition(drawn, truth, points, held, chosen=inner, truth=truth)
    own = nonnegative_superposition(drawn, drawn, points, held, chosen=inner)
    scores |= {f"own_{name}": value for name, value in own.items()}
    used = ~held | inner
    parts = None if averaged is None else averaged[:, inner]
    scores |= metrics.superposition_scores(drawn[:, used], points[used], held[used], averaged=parts)

    images = drawn + task.background
    grams = {COSINE: gram_matrix(images, "cosine"), DISTANCE: -gram_matrix(images, "l2")}
    grams |= {overlap(t): gram_matrix(images, "overlap", dark=dark, threshold=t) for t in THRESHOLDS}
    stacked, compared = torch.stack(list(grams.values())), partial(kernel_families, shape=shape, held_out=held)
    inside = compared(stacked, rows=inner)
    every = compared(grams[COSINE], shifts=False).agreement
    standardised = compared(grams[COSINE], rows=inner, standardised=True, shifts=False).agreement
    beside = compared(stacked, rows=inner, near=NEAR).agreement
    for family in FAMILIES:
        rows = [inside.agreement[family], every[family][None], standardised[family][None], beside[family]]
        scores[f"kernel_{family}"] = torch.cat(rows).mT
    scores["kernel_p"] = inside.p_value[0]
    contrasts = {name: block_contrast(gram, points, held) for name, gram in grams.items()}
    contrasts[FULL_MATRIX] = block_contrast(grams[COSINE], points)
    scores["block_contrast"] = torch.stack([contrasts[name] for name in CONTRASTS], dim=1)

    counted = partial(metrics.peak_scores, drawn.unflatten(2, task.image_shape), points[:, :2], chosen=inner, dark=dark)
    found = [counted(own=of == OWN_MAXIMUM, thresholds=own) for of, own in PEAK_THRESHOLDS.items()]
    return scores | {PEAK_NAMES.get(name, name): torch.cat([part[name] for part in found], 1) for name in found[0]}


class Settings(MLPSettings):
    superposition_depths: AnyNumber = (2, 6, 8)
    """Additional depths of the bump-coded CNN."""

    variants: ClassVar[Mapping[str, Any]] = {"quick": {"superposition_depths": ()}}


class SuperpositionStudy(Study[Settings]):
    name: ClassVar[str] = "superposition"
    question: ClassVar[str] = "What does a network that fails to compose draw instead?"
    settings: ClassVar[type[Settings]] = Settings
    version: ClassVar[int] = 3
    metrics: ClassVar[tuple[str, ...]] = (
        "averaged_codes", "nonnegative_weights", "theoretical_kernel", *SUPERPOSITION_METRICS
    )  # fmt: skip

    def arms(self, preset: Settings) -> list[Arm]:
        arms = [Arm((code, CNN_ARM), preset.spec(encoding=code), extra=code not in CODES) for code in ALL_CODES]
        for depth in preset.superposition_depths:
            arms.append(Arm(("bump", f"CNN of depth {depth}"), preset.spec(decoder=preset.cnn(depth)), extra=True))
        arms.append(Arm(("bump", MLP_ARM), preset.mlp_spec("bump", preset.mlp_depths[0]), extra=True))
        return arms + [Arm((code, DARK), preset.spec(encoding=code, polarity="dark"), extra=True) for code in CODES]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        def measured(batch: Batch) -> Measured:
            return {**batch.scores, **superposition_scores_of(batch)}

        result = tabulate(trials, ("encoding", "decoder"), measured, SUPERPOSITION_DIMS)
        inner = {"gram": ("kernel", "row", "column"), "panel_image": ("panel", "row_pixel", "column_pixel")}
        shown = {(code,): trials.pictured[code, CNN_ARM] for code in CODES}
        pictures = tabulate(Trials(trials.preset, trials.device, shown), ("encoding",), _pictured, inner)
        spec = trials["bump", CNN_ARM][0].spec
        order, kept = _matrix_order(spec.task)
        positions = spec.task.grid.points[order]
        binary = metrics.theoretical_kernel("binary", positions[kept:], positions[:kept])
        result = result.merge(pictures.isel(seed=0, drop=True).drop_vars(TRAINED), join="left").assign(
            binary=(("held_row", "kept_column"), binary.numpy().astype(np.float32))
        )
        position = sample_points(spec)[0].tolist()
        attributes = base_attributes(trials, size=trials.preset.size, kept=kept, place=position)
        coordinates = {**SUPERPOSITION_COORDS, "kernel": list(KERNELS), "panel": list(PANELS)}
        return result.assign_coords(coordinates).assign_attrs(attributes)


def _pictured(batch: Batch) -> dict[str, Any]:
    """Return Gram matrices, and the panels of Fig. 1d at one held-out position in the order of `PANELS`."""
    task, points, held = batch.task, batch.task.grid.points, batch.task.held_out
    codes, truth, dark = task.codes(points), true_signals(task).to(batch.device), task.background == 1
    every, (order, _) = signals(batch, codes), _matrix_order(task)
    images = (every + task.background)[:, order.to(batch.device)]
    grams = [gram_matrix(images, kernel, dark=dark, threshold=SHOWN_THRESHOLD) for kernel in KERNELS]  # type: ignore[arg-type]

    at = task.grid.nearest(sample_points(batch.spec)[:1])
    drawn = every[:, at]
    alone = [signals(batch, part[at]) for part in metrics.averaged_codes(codes, task.code_sizes, codes[~held])]
    memories = truth[((points == points[at]).any(dim=1) & ~held).to(batch.device)]
    gram, products = memories.double() @ memories.double().mT, drawn.double() @ memories.double().mT
    weights = metrics.nonnegative_weights(gram.expand(*products.shape, len(gram)), products)
    best_sum = (weights @ memories.double()).to(drawn.dtype)
    panels = torch.cat([drawn, best_sum, *alone, truth[at].expand(len(batch), -1, -1)], dim=1)
    return {"gram": torch.stack(grams, dim=1), "panel_image": panels.unflatten(2, task.image_shape)}


def _matrix_order(task: Task) -> tuple[Tensor, int]:
    """Return a Gram matrix's points, kept ones first, and the number kept; large grids use every second value."""
    step = 2 if max(task.grid.shape) > 16 else 1
    chosen = (task.grid.indices % step == 0).all(dim=1)
    kept, held = (torch.nonzero(chosen & region).flatten() for region in (~task.held_out, task.held_out))
    return torch.cat([kept, held]), len(kept)


STUDY = SuperpositionStudy()
