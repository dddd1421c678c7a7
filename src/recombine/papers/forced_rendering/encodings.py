"""Do networks compose, whatever the encoding? (§3.2, Fig. 1 a–c)

Every encoding against the centred box; bump and rate codes also against a corner, and against the published cross,
which removes whole values of x and y; and the published scripts' dark bumps. Result: scores per seed, also in the
interior of the hold-out and by distance from the kept region, error maps over the grid, and drawings at held-out
positions.

Beside the box stand other hold-outs, its interior, distances from the kept region, and other decoders with bump codes.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from recombine.panels import (
    COLORS,
    band,
    bar_groups,
    bare,
    divided,
    drawn_image,
    grid_image,
    letter,
    of_shared_seeds,
    seed_count,
    styled,
)
from recombine.papers.forced_rendering.attention import ARCHITECTURES, BASE
from recombine.papers.forced_rendering.mlp import MLP_ARM
from recombine.papers.forced_rendering.presets import ALL_CODES, CODES, BumpPreset
from recombine.papers.forced_rendering.samples import (
    COMPOSING_ACCURACY,
    FAILING_ERROR,
    measured_by,
    sample,
    some_distances,
)
from recombine.papers.forced_rendering.scores import DISTANCE_DIMS, DISTANCE_METRICS, errors_by_distance
from recombine.papers.forced_rendering.superposition import (
    CNN_ARM,
    COSINE,
    OUTPUT,
    SHOWN_THRESHOLD,
    SUM,
    THRESHOLDS,
    TRUTH,
    X_ALONE,
    Y_ALONE,
    overlap,
)
from recombine.papers.forced_rendering.superposition_claims import over_rival, superposed
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import above, below
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.measuring import (
    DRAWING,
    Batch,
    base_attributes,
    drawings,
    grid_maps,
    grid_variables,
    sample_points,
    tabulate,
)
from recombine.reproduction.study import Arm, Study, Trials
from recombine.reproduction.tables import keep_first

BOX, CORNER, CROSS, DARK = "box", "corner", "cross", "box, dark bumps"


class EncodingStudy(Study[BumpPreset]):
    """Every encoding against the centred hold-out."""

    name: ClassVar[str] = "encodings"
    question: ClassVar[str] = "Does any disentangled encoding let a plain decoder compose?"
    settings: ClassVar[type[BumpPreset]] = BumpPreset
    version: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = DISTANCE_METRICS

    def arms(self, preset: BumpPreset) -> list[Arm]:
        arms = [Arm((encoding, BOX), preset.spec(encoding=encoding)) for encoding in ALL_CODES]
        for encoding in CODES:
            arms.append(Arm((encoding, CORNER), preset.spec(encoding=encoding, holdout="corner"), extra=True))
            crossed = preset.spec(encoding=encoding, holdout="cross", allow_unseen=True)
            arms.append(Arm((encoding, CROSS), crossed, extra=True))
        arms.append(Arm(("bump", DARK), preset.spec(polarity="dark"), extra=True))
        return arms

    def measure(self, trials: Trials[BumpPreset]) -> xarray.Dataset:
        def measured(batch: Batch) -> dict[str, object]:
            blank = batch.stored("blank")[:, batch.task.held_out.numpy()].mean(axis=1)
            error = grid_maps(batch, "error") / blank[:, None, None]
            return {**batch.scores, **errors_by_distance(batch), "error": error, "drawing": drawings(batch)}

        inner = {"error": ("y", "x"), "drawing": DRAWING, **DISTANCE_DIMS}
        result = tabulate(trials, ("encoding", "holdout"), measured, inner)
        specs = {holdout: trials["bump", holdout][0].spec for holdout in (BOX, CROSS)}
        positions = [sample_points(spec).numpy() for spec in specs.values()]
        masks = [spec.task.held_out.reshape(spec.task.grid.shape).T.numpy() for spec in specs.values()]
        coordinates = grid_variables(specs[BOX])
        return keep_first(result, "error", "drawing").assign(
            place=(("region", "sample", "axis"), np.stack(positions)),
            held_out=(("region", "y", "x"), np.stack(masks)),
        ).assign_coords(
            region=list(specs), x=coordinates["x"], y=coordinates["y"], axis=["x", "y"],
                        distance=1 + np.arange(result.sizes["distance"])).assign_attrs(
            base_attributes(trials, size=trials.preset.size)
        )  # fmt: skip


STUDY = EncodingStudy()


# -- claims ----------------------------------------------------------------------------------------------------------


def _by_encoding(data: Data, score: str) -> dict[str, Sample]:
    return measured_by(data["encodings"].sel(holdout=BOX), score, "{encoding}", "encoding")


def _beside(data: Data, score: str) -> dict[str, Sample]:
    result = data["encodings"]
    boxed = result.sel(holdout=BOX)
    samples = measured_by(boxed, f"interior_{score}", "{encoding}, interior", "encoding")
    bump = boxed.sel(encoding="bump")
    for distance in some_distances(bump[f"distance_{score}"]):
        values = bump[f"distance_{score}"].sel(distance=distance)
        samples[f"bump, {distance} px from the kept region"] = sample(values, bump)
    others = result.drop_sel(holdout=BOX)
    samples |= measured_by(others, f"ood_{score}", "{encoding}, {holdout}", "holdout", "encoding")
    # MLPs of every depth, and with bump codes transformer and coordinate MLP; against the box
    if "mlp" in data:
        mlps = data["mlp"].sel(decoder=MLP_ARM)
        samples |= measured_by(mlps, f"ood_{score}", "{encoding}, MLP of depth {depth}", "encoding", "depth")
    if "attention" in data:
        base = data["attention"].sel(decoder=list(ARCHITECTURES), variant=BASE)
        samples |= measured_by(base, f"ood_{score}", "bump, {decoder}", "decoder")
    return samples


CLAIMS = (
    Claim(
        "C1",
        "Decoders fail to compose for every disentangled code",
        "§3.2, Fig. 1b–c",
        statements=(
            Statement(
                above("held-out error over blank", FAILING_ERROR),
                lambda data: _by_encoding(data, "ood_over_blank"),
                lambda data: _beside(data, "over_blank"),
            ),
            Statement(
                below("held-out accuracy", COMPOSING_ACCURACY),
                lambda data: _by_encoding(data, "ood_accuracy"),
                lambda data: _beside(data, "accuracy"),
            ),
        ),
        studies=("encodings",),
        beside=("mlp", "attention"),
    ),
)


# -- figure ----------------------------------------------------------------------------------------------------------


TOP = 1.5
"""Errors are shown up to this many times blank."""
MAIN = ("bump", "rate")


def encodings_figure(result: xarray.Dataset, superposition: xarray.Dataset) -> Figure:
    """All panels of Fig. 1."""
    with styled():
        figure = pyplot.figure(figsize=(10.2, 6.6), layout="constrained")
        top, middle, bottom = divided(figure, 3, 1, height_ratios=[2.3, 1.25, 1.55])
        image = _main_rows(top, result)
        _other_rows(middle, result)
        _superposition_row(bottom, superposition)
        top.colorbar(image, ax=top.axes, location="right", shrink=0.6, label="MSE / MSE of blank", pad=0.01)
    return figure


def _main_rows(figure: SubFigure, result: xarray.Dataset) -> object:
    axes = figure.subplots(2, 9)
    mask = result["held_out"].sel(region=BOX).values
    _setup(axes[0, 0], result, mask)
    axes[1, 0].set_visible(False)
    for row, encoding in enumerate(MAIN):
        for start, holdout in ((1, BOX), (5, CROSS)):
            image = _error(axes[row, start], result, encoding, holdout)
            _drawings(axes[row, start + 1 : start + 4], result, encoding, holdout)
        letter(axes[row, 1], "bc"[row], f"{encoding} code, box held out")
        axes[row, 5].set_title("cross held out", loc="left", fontsize=9)
    return image


def _setup(ax: Axes, result: xarray.Dataset, mask: np.ndarray) -> None:
    """What is trained on and what is not."""
    grid = result.assign(held_out=(("y", "x"), mask))
    grid_image(ax, np.where(mask, 0.8, 0.25), grid, cmap="gray", vmin=0, vmax=1)
    for text, place in (("held\nout", (0.5, 0.5)), ("kept", (0.5, 0.1))):
        ax.text(*place, text, transform=ax.transAxes, ha="center", va="center", fontsize=7,
                color="black" if place[1] == 0.5 else "white")  # fmt: skip
    ax.set_xlabel("x")
    ax.set_ylabel("y")
    letter(ax, "a", "set-up")


def _error(ax: Axes, result: xarray.Dataset, encoding: str, holdout: str) -> object:
    values = result["mean_error"].sel(encoding=encoding, holdout=holdout).values
    return grid_image(
        ax, values, result, result["held_out"].sel(region=holdout).values, vmin=0, vmax=TOP, cmap="viridis"
    )


def _drawings(axes: np.ndarray, result: xarray.Dataset, encoding: str, holdout: str) -> None:
    for k, ax in enumerate(axes):
        image = result["drawing"].sel(encoding=encoding, holdout=holdout).isel(sample=k).values
        mask = result["held_out"].sel(region=holdout).values
        place = result["place"].sel(region=holdout).isel(sample=k).values
        drawn_image(ax, image, mask, place, float(result.attrs["background"]))


def _other_rows(figure: SubFigure, result: xarray.Dataset) -> None:
    others = [str(name) for name in result["encoding"].values if name not in MAIN]
    left, right = divided(figure, 1, 2, width_ratios=[4.6, 1.3])
    axes = left.subplots(1, 3 * len(others))
    for k, encoding in enumerate(others):
        _error(axes[3 * k], result, encoding, BOX)
        axes[3 * k].set_title(f"{encoding} code", loc="left", fontsize=9)
        _drawings(axes[3 * k + 1 : 3 * k + 3], result, encoding, BOX)
    _by_distance(right.subplots(), result)


def _by_distance(ax: Axes, result: xarray.Dataset) -> None:
    """Error against distance from the kept region, by encoding."""
    boxed = result["distance_over_blank"].sel(holdout=BOX)
    for encoding, color in zip(boxed["encoding"].values, COLORS, strict=False):
        band(ax, boxed.sel(encoding=encoding), str(encoding), color, markersize=2.5)
    ax.set_ylim(0, 1.5 * ax.get_ylim()[1])  # with room for the legend
    ax.set_xlabel("px from kept", fontsize=7)
    ax.set_title("error / blank", loc="left", fontsize=9)
    ax.legend(fontsize=5, loc="upper left", ncols=2)


def _superposition_row(figure: SubFigure, result: xarray.Dataset) -> None:
    left, right = divided(figure, 1, 2, width_ratios=[3.3, 2.6])
    axes = left.subplots(1, 5)
    panels = result["panel_image"].sel(encoding="bump")
    titles = {OUTPUT: "output", X_ALONE: "x, mean y", Y_ALONE: "mean x, y", SUM: "Σ memories", TRUTH: "truth"}
    for ax, (name, title) in zip(axes, titles.items(), strict=True):
        drawn_image(ax, panels.sel(panel=name).values, None, result.attrs["place"])
        ax.set_title(f"(d) {title}" if name == OUTPUT else title, loc="left", fontsize=9)
    kept = int(result.attrs["kept"])
    blocks = {"(e) binary": result["binary"].values}
    for kernel, title in (("overlap", f"overlap > {SHOWN_THRESHOLD:g}"), ("cosine", "cosine")):
        blocks[title] = result["gram"].sel(encoding="bump", kernel=kernel).values[kept:, :kept]
    axes = right.subplots(1, 4, width_ratios=[1, 1, 1, 1.3])
    for ax, (title, values) in zip(axes, blocks.items(), strict=False):
        scale = np.percentile(values, 99.5) or 1.0
        ax.imshow(values, cmap="magma", vmin=0, vmax=scale, aspect="auto")
        bare(ax)
        ax.set_xlabel("kept")
        ax.set_title(title, loc="left", fontsize=8)
    axes[0].set_ylabel("held out")
    _threshold_sweep(axes[3], result)


def _threshold_sweep(ax: Axes, result: xarray.Dataset) -> None:
    """How much better the OR kernel describes the overlap than its rivals do, against the threshold."""
    networks, along = _failing(result), xarray.DataArray(list(THRESHOLDS), dims="threshold", name="threshold")
    for rival, color in zip(("product", "radial"), COLORS, strict=False):
        values = xarray.concat([over_rival(networks, rival, overlap(threshold)) for threshold in THRESHOLDS], along)
        band(ax, values, f"less {rival}", color, markersize=2.5)
    ax.axhline(0, color="0.7", linewidth=0.8)
    ax.set_xlabel("threshold", fontsize=7)
    ax.set_title("OR's correlation", loc="left", fontsize=8)
    ax.legend(fontsize=5)


def _failing(superposition: xarray.Dataset) -> xarray.Dataset:
    """The bump-coded CNNs."""
    return superposition.sel(encoding="bump", decoder=CNN_ARM)


def encodings_caption(result: xarray.Dataset, superposition: xarray.Dataset) -> str:
    """What the figure shows, with numbers from the data."""
    box = result.sel(holdout=BOX)
    over = box["ood_over_blank"].mean("seed")
    networks = _failing(superposition)
    bump = networks.mean("seed")
    shown, cosine = (
        " and ".join(f"{over_rival(networks, rival, name).mean().item():.2f}" for rival in ("product", "radial"))
        for name in (overlap(SHOWN_THRESHOLD), COSINE)
    )
    seeds = int(box["ood_over_blank"].notnull().sum("seed").max())
    return (
        "(a) Combinations kept for training and held out. (b, c) Squared error over the grid relative to a blank image "
        f"(mean over {seeds} seeds; cross: "
        f"{int(result['ood_over_blank'].sel(encoding='bump', holdout=CROSS).notnull().sum())}) and what the first seed "
        "draws at held-out places; crosses mark the truth, white is a drawing's brightest pixel. The error in the box "
        f"is {over.min().item():.2f} ({over.idxmin().item()}) to {over.max().item():.2f} ({over.idxmax().item()}) "
        f"times blank, in training at most {box['id_over_blank'].mean('seed').max().item():.3f}. (d) An output in the "
        "box, the outputs for each factor with the other one averaged, and the best non-negative sum of training "
        f"images that share x or y. Over the box's interior such sums explain {_percent(bump['matched'])} of the "
        f"outputs' variance, sums of as many that share neither {_percent(bump['mismatched'])} (difference "
        f"{superposed(networks).mean().item():.2f}, {seed_count(networks['matched'])}), the true images "
        f"{_percent(bump['truth'])}. (e) The binary kernel, overlap of pixels above {SHOWN_THRESHOLD:g} of a bump's "
        "height and cosine similarity of held-out with kept outputs; right, by how much the smoothed binary (OR) "
        "kernel's correlation with the overlap in the interior exceeds that of product and radial kernels, by "
        f"threshold; at {SHOWN_THRESHOLD:g}: {shown}; for cosine similarity {cosine}."
    )


def _percent(value: xarray.DataArray) -> str:
    return f"{100 * value.item():.0f} %"


def conventions_figure(encodings: xarray.Dataset, depth: xarray.Dataset) -> Figure:
    """Polarity, finite differences, ratio of means, in-sample probe: paper's against scripts'."""
    shown = int(depth.attrs["shown"])
    own = depth.sel(encoding="bump", depth=shown)
    with styled():
        figure, axes = pyplot.subplots(1, 4, figsize=(11.2, 3.0), layout="constrained")
        names = ("bright (paper)", "dark (scripts)")
        both = _polarities(encodings)
        bar_groups(axes[0], list(names), {name: own.values for name, own in zip(names, both, strict=True)}, COLORS)
        axes[0].set_title(f"held-out error / blank, {seed_count(both[0])}")
        for ax, title, lines in (
            (axes[1], "spread of log10 dv", {"exact (paper)": "spread", "differences (scripts)": "spread_differences"}),
            (axes[2], "factorization", {
                "exact, mean of points (paper)": "factorization", "of mean |g| (scripts)": "factorization_of_means",
                "differences": "factorization_differences",
            }),
            (axes[3], "probe R²", {"in sample (paper)": "probe_in_sample", "held-out points": "probe_held_out"}),
        ):  # fmt: skip
            for (label, name), color in zip(lines.items(), COLORS, strict=False):
                band(ax, own[name], label, color)
            ax.set_title(title)
            ax.set_xlabel("stage (0: input)")
            ax.legend(fontsize=7)
        axes[3].set_ylim(max(-0.5, axes[3].get_ylim()[0]), 1.05)
    return figure


def _polarities(encodings: xarray.Dataset) -> tuple[xarray.DataArray, ...]:
    """Held-out errors with bright and with dark bumps, of the seeds that were trained with both."""
    over = encodings["ood_over_blank"].sel(encoding="bump")
    return of_shared_seeds(over.sel(holdout=BOX), over.sel(holdout=DARK))


def conventions_caption(encodings: xarray.Dataset, depth: xarray.Dataset) -> str:
    """The differences in numbers."""
    shown = int(depth.attrs["shown"])
    own = depth.sel(encoding="bump", depth=shown).mean("seed").isel(stage=slice(1, None))
    bright, dark = _polarities(encodings)
    ratio = (own["spread_differences"] / own["spread"]).mean("stage").item()
    return (
        f"Bump-coded CNN of depth {shown}. Held-out error over blank, mean over the {seed_count(bright)} trained both "
        f"ways: {bright.mean().item():.2f} with bright bumps (the paper), {dark.mean().item():.2f} with dark ones (the "
        f"scripts). The rest over {seed_count(depth['spread'].sel(encoding='bump', depth=shown))}: finite differences "
        f"on the grid make the spread of log10 dv {ratio:.2f} times as large, mean over layers. Factorization, mean "
        f"over layers: {own['factorization'].mean().item():.3f} as the mean over points, "
        f"{own['factorization_of_means'].mean().item():.3f} as a ratio of means, "
        f"{own['factorization_differences'].mean().item():.3f} by finite differences. Probe R² at its lowest layer: "
        f"{np.nanmin(own['probe_in_sample'].values):.3f} in sample, {np.nanmin(own['probe_held_out'].values):.3f} on "
        "held-out points."
    )


FIGURES = (
    FigureSpec(
        "fig1",
        "Disentangled encodings do not compose",
        ("encodings", "superposition"),
        encodings_figure,
        encodings_caption,
    ),
    FigureSpec(
        "conventions",
        "Paper's conventions against the published scripts'",
        ("encodings", "depth"),
        conventions_figure,
        conventions_caption,
    ),
)
