"""Are memorising and composing networks in different kernel regimes? (App. A.4–A.5)

Three properties of the outputs' Gram matrix are measured for failing (bumps alone), stripe-trained and penalised
networks: PF_Coeff, the operator-Schmidt spectrum, and the relative Frobenius distance ‖K − K*‖ / ‖K*‖ to the Gram
matrix of ideal bump images. Kernels are cosine similarities of outputs minus background, so brightness is irrelevant.

The appendix contradicts itself on which regime composes (docs/theory.md), so the claim is exploratory: each composing
arm (experimental condition) is compared with the network without the remedy.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from recombine.metrics import effective_rank, gram_matrix, partial_factorization, schmidt_spectrum
from recombine.panels import divided, group_dots, seed_count, styled
from recombine.papers.forced_rendering.controls import Settings
from recombine.papers.forced_rendering.palette import arm_styles
from recombine.papers.forced_rendering.penalties import BOTH, NONE, penalised_spec
from recombine.papers.forced_rendering.samples import PENALISED, UNPENALISED, difference
from recombine.papers.forced_rendering.scores import training_fit
from recombine.papers.forced_rendering.stripes import MANY
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import effect
from recombine.reproduction.figures import FigureSpec, cell
from recombine.reproduction.measuring import Batch, base_attributes, tabulate
from recombine.reproduction.study import Arm, Study, Trials

FAILING, STRIPES, STRIPES_BUMPS = "bumps alone", "stripes only", "stripes and bumps"
RIVALS = {STRIPES: FAILING, STRIPES_BUMPS: FAILING, PENALISED: UNPENALISED}
"""Composing arms, mapped to the corresponding arms without the remedy."""


class RegimeStudy(Study[Settings]):
    name: ClassVar[str] = "regimes"
    question: ClassVar[str] = "Are memorising and composing networks in different kernel regimes?"
    settings: ClassVar[type[Settings]] = Settings
    version: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = (
        "effective_rank", "extreme_pixel", "gram_matrix", "hits", "partial_factorization", "schmidt_spectrum",
        "squared_error",
    )  # fmt: skip

    def arms(self, preset: Settings) -> list[Arm]:
        return [
            Arm((FAILING,), preset.spec()),
            Arm((STRIPES,), preset.striped_spec(0)),
            Arm((STRIPES_BUMPS,), preset.striped_spec(preset.closest(MANY))),
            Arm((UNPENALISED,), penalised_spec(preset, NONE)),
            Arm((PENALISED,), penalised_spec(preset, BOTH)),
        ]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        inner = {"schmidt": ("mode",), "ideal_schmidt": ("mode",)}
        result = tabulate(trials, ("arm",), _measured, inner)
        ideal = tabulate(trials.pictured, ("arm",), _ideal, inner).isel(seed=0, drop=True)
        return result.merge(ideal, compat="no_conflicts").assign_attrs(base_attributes(trials, size=trials.preset.size))


def _measured(batch: Batch) -> dict[str, Any]:
    task = batch.task
    gram = _kernel(batch.outputs(task.grid.points) - task.background)
    ideal = _kernel(task.render(task.grid.points) - task.background)
    distance = (gram - ideal).norm(dim=(-2, -1)) / ideal.norm()
    return {**batch.scores, **training_fit(batch), **_regime(gram, task.grid.shape), "kernel_distance": distance}


def _ideal(batch: Batch) -> dict[str, Any]:
    """Return the same measures for the target images, which all runs of an arm share."""
    task = batch.task
    gram = _kernel(task.render(task.grid.points) - task.background).expand(len(batch), -1, -1)
    return {f"ideal_{name}": value for name, value in _regime(gram, task.grid.shape).items()}


def _kernel(images: Tensor) -> Tensor:
    """Return the cosine similarities between images `[…, point, y, x]`."""
    return gram_matrix(images.flatten(-2).double(), "cosine")


def _regime(gram: Tensor, shape: tuple[int, ...]) -> dict[str, Tensor]:
    spectrum = schmidt_spectrum(gram, shape)
    return {
        "schmidt": spectrum[:, :12],
        "schmidt_rank": effective_rank(spectrum.square()),
        "single_factor": partial_factorization(gram, shape),
        "single_factor_absolute": partial_factorization(gram, shape, weight="absolute"),
    }


STUDY = RegimeStudy()


def _less_failing(data: Data, name: str, sign: int, words: str = "") -> dict[str, Sample]:
    """Return the difference composing − failing networks, or failing − composing if `sign=-1`."""
    pairs = {pair[0]: [data["regimes"].sel(arm=arm) for arm in pair] for pair in RIVALS.items()}
    return {f"{arm}{words}": difference(name, *own[::sign]) for arm, own in pairs.items()}


CLAIMS = (
    Claim(
        "C18",
        "Memorising and composing networks sit in different kernel regimes (A.4 calls one product of kernels purely "
        "factorized, A.5 calls one N-factor term memorisation: they disagree on which is which)",
        "App. A.4–A.5",
        statements=(
            Statement(
                effect("distance of the kernel to the ideal's, failing less composing", 0.0),
                lambda data: _less_failing(data, "kernel_distance", -1),
            ),
            Statement(
                effect("effective number of Schmidt terms, failing less composing", 0.0),
                lambda data: _less_failing(data, "schmidt_rank", -1),
            ),
            Statement(
                effect("PF_Coeff, weight in single-factor terms, composing less failing", 0.0),
                lambda data: _less_failing(data, "single_factor", 1),
                lambda data: _less_failing(data, "single_factor_absolute", 1, ", absolute weights"),
            ),
        ),
        studies=("regimes",),
        exploratory=True,
    ),
)

PANELS = {
    "schmidt_rank": "Schmidt rank",
    "single_factor": "PF_Coeff, single factors",
    "kernel_distance": "distance to ideal kernel",
}
"""Variables plotted by arm, mapped to their panel titles."""


def regimes_figure(result: xarray.Dataset) -> Figure:
    """Plot Schmidt spectra and ranks, single-factor weights, and distances to the ideal kernel."""
    arms = [str(arm) for arm in result["arm"].values]
    styles = arm_styles(arms)
    with styled():
        figure = pyplot.figure(figsize=(12.4, 3.2), layout="constrained")
        left, right = divided(figure, 1, 2, width_ratios=[1, 3.4])
        spectra, axes = left.subplots(), right.subplots(1, 3, sharey=True)
        modes = np.arange(1, result.sizes["mode"] + 1)
        for arm, style in styles.items():
            means = result["schmidt"].sel(arm=arm).mean("seed")
            spectra.plot(modes, means, markersize=3.5, label=arm, **style)
        for number, ideal in enumerate(np.unique(result["ideal_schmidt"].values.round(6), axis=0)):
            spectra.plot(modes, ideal, "k:", label="ideal bumps" if number == 0 else None)
        spectra.set(yscale="log", xlabel="mode", title="operator-Schmidt values", ylim=(1e-3, 3))
        spectra.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        spectra.legend(fontsize=7)
        for ax, (name, title) in zip(axes, PANELS.items(), strict=True):
            group_dots(
                ax, {arm: result[name].sel(arm=arm).values for arm in arms}, [styles[arm]["color"] for arm in arms]
            )
            for k, ideal in enumerate(_of_ideal_bumps(result, name).values):
                ax.plot([ideal] * 2, [k - 0.42, k + 0.42], color="black", linestyle=":", linewidth=1.2)
            ax.set_title(title)
    return figure


def _of_ideal_bumps(result: xarray.Dataset, name: str) -> xarray.DataArray:
    """Return the value for ideal bumps; the distance to itself is 0."""
    return result.get(f"ideal_{name}", 0 * result["ideal_schmidt_rank"])


def regimes_caption(result: xarray.Dataset) -> str:
    return (
        "Kernel (cosine Gram matrix) of the outputs over the whole grid: effective number of Schmidt terms, weight in "
        "single-factor terms, and relative distance to the kernel of ideal bumps with each arm's settings (dotted), "
        f"{seed_count(result['schmidt_rank'])}; lines are medians."
    )


def regimes_table(result: xarray.Dataset) -> list[list[str]]:
    columns = {title: result[name].mean("seed") for name, title in PANELS.items()}
    columns |= {f"{PANELS[name]}, ideal bumps": _of_ideal_bumps(result, name) for name in list(PANELS)[:2]}
    rows = [[str(arm), *(cell(own.sel(arm=arm)) for own in columns.values())] for arm in result["arm"].values]
    return [["mean", *columns], *rows]


FIGURES = (FigureSpec("regimes", "Kernel regimes", ("regimes",), regimes_figure, regimes_caption, regimes_table),)
