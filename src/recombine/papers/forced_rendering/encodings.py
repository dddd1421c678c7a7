"""Do networks compose with any encoding? (§3.2, Fig. 1 a–c)

For every encoding, networks are trained with a centred box held out. For bump and rate codes, a corner and the
published cross (which removes entire values of x and y) are also held out in turn, and for bump codes, networks are
also trained on the dark bumps of the published scripts. The result contains scores per seed (also for the interior
of the hold-out and by distance from the kept, not held-out region), error maps, and outputs at held-out positions.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.figure import Figure, SubFigure

from recombine import panels
from recombine.panels import COLORS, band, divided, grid_image, held_out_drawing, letter, seed_count, styled
from recombine.papers.forced_rendering import attention, mlp
from recombine.papers.forced_rendering.palette import CODE_COLORS
from recombine.papers.forced_rendering.presets import ALL_CODES, CODES, BumpPreset
from recombine.papers.forced_rendering.samples import FAILS, held_out_statements, measured_by, some_distances
from recombine.papers.forced_rendering.scores import DISTANCE_DIMS, DISTANCE_METRICS, errors_by_distance
from recombine.papers.forced_rendering.superposition_claims import (
    SUPERPOSITION_WORDS,
    superposition_row,
    superposition_rows,
)
from recombine.reproduction import measuring
from recombine.reproduction.claims import Claim, Data, Sample
from recombine.reproduction.figures import FigureSpec, cell
from recombine.reproduction.study import Arm, Study, Trials
from recombine.reproduction.tables import keep_first

BOX, CORNER, CROSS, DARK = "box", "corner", "cross", "box, dark bumps"


class EncodingStudy(Study[BumpPreset]):
    name: ClassVar[str] = "encodings"
    question: ClassVar[str] = "Does any disentangled encoding let a plain decoder compose?"
    settings: ClassVar[type[BumpPreset]] = BumpPreset
    version: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = DISTANCE_METRICS

    def arms(self, preset: BumpPreset) -> list[Arm]:
        arms = [Arm((code, BOX), preset.spec(encoding=code)) for code in ALL_CODES]
        for code in CODES:
            arms.append(Arm((code, CORNER), preset.spec(encoding=code, holdout="corner"), extra=True))
            crossed = preset.spec(encoding=code, holdout="cross", allow_unseen=True)
            arms.append(Arm((code, CROSS), crossed, extra=True))
        return [*arms, Arm(("bump", DARK), preset.spec(polarity="dark"), extra=True)]

    def measure(self, trials: Trials[BumpPreset]) -> xarray.Dataset:
        def measured(batch: measuring.Batch) -> dict[str, object]:
            blank = batch.stored("blank")[:, batch.task.held_out.numpy()].mean(axis=1)
            error = measuring.grid_maps(batch, "error") / blank[:, None, None]
            return {**batch.scores, **errors_by_distance(batch), "error": error, "drawing": measuring.drawings(batch)}

        inner = {"error": ("y", "x"), "drawing": measuring.DRAWING, **DISTANCE_DIMS}
        result = measuring.tabulate(trials, ("encoding", "holdout"), measured, inner)
        specs = {holdout: trials["bump", holdout][0].spec for holdout in (BOX, CROSS)}
        positions = [measuring.sample_points(spec).numpy() for spec in specs.values()]
        grids = [measuring.grid_variables(spec) for spec in specs.values()]
        return keep_first(result, "error", "drawing").assign(
            place=(("region", "sample", "axis"), np.stack(positions)),
            held_out=(("region", "y", "x"), np.stack([grid["held_out"][1] for grid in grids])),
        ).assign_coords(
            region=list(specs), x=grids[0]["x"], y=grids[0]["y"], axis=["x", "y"],
            distance=1 + np.arange(result.sizes["distance"]),
        ).assign_attrs(measuring.base_attributes(trials, size=trials.preset.size))  # fmt: skip


STUDY = EncodingStudy()


def _by_encoding(data: Data, score: str) -> dict[str, Sample]:
    return measured_by(data["encodings"].sel(holdout=BOX), f"ood_{score}", "{encoding}", "encoding")


def _otherwise(data: Data, score: str) -> dict[str, Sample]:
    """Return scores in the interior of the box, by distance from its border, and for other hold-outs and decoders."""
    result = data["encodings"]
    boxed = result.sel(holdout=BOX)
    samples = measured_by(boxed, f"interior_{score}", "{encoding}, interior", "encoding")
    bump = boxed.sel(encoding="bump")
    near = bump.sel(distance=some_distances(bump[f"distance_{score}"]))
    samples |= measured_by(near, f"distance_{score}", "bump, {distance} px from the kept region", "distance")
    others = result.drop_sel(holdout=BOX)
    samples |= measured_by(others, f"ood_{score}", "{encoding}, {holdout}", "holdout", "encoding")
    if "mlp" in data:
        mlps = data["mlp"].sel(decoder=mlp.MLP_ARM)
        samples |= measured_by(mlps, f"ood_{score}", "{encoding}, MLP of depth {depth}", "encoding", "depth")
    if "attention" in data:
        samples |= attention.by_decoder(data, score, "bump, {decoder}")
    return samples


CLAIMS = (
    Claim(
        "C1",
        "Decoders fail to compose for every disentangled code",
        "§3.2, Fig. 1b–c",
        statements=held_out_statements(FAILS, _by_encoding, _otherwise),
        studies=("encodings",),
        beside=("mlp", "attention"),
    ),
)


def encodings_figure(result: xarray.Dataset, superposition: xarray.Dataset) -> Figure:
    """Draw all panels of Fig. 1."""
    with styled():
        figure = pyplot.figure(figsize=(10.2, 6.6), layout="constrained")
        top, middle, bottom = divided(figure, 3, 1, height_ratios=[2.3, 1.25, 1.55])
        image = _main_rows(top, result)
        _other_row(middle, result)
        superposition_row(bottom, superposition)
        top.colorbar(image, ax=top.axes, location="right", shrink=0.6, label="MSE / MSE of blank", pad=0.01)
    return figure


def _main_rows(figure: SubFigure, result: xarray.Dataset) -> Any:
    """Plot the set-up, and errors and outputs for bump and rate codes with the box and the cross held out."""
    axes = figure.subplots(2, 9)
    box = result.sel(region=BOX)
    grid_image(axes[0, 0], np.where(box["held_out"], 0.8, 0.25), box, cmap="gray", vmin=0, vmax=1)
    for text, height, color in (("held\nout", 0.5, "black"), ("kept", 0.1, "white")):
        place = {"transform": axes[0, 0].transAxes, "ha": "center", "va": "center"}
        axes[0, 0].text(0.5, height, text, fontsize=7, color=color, **place)
    axes[0, 0].set(xlabel="x", ylabel="y")
    letter(axes[0, 0], "a", "set-up")
    axes[1, 0].set_visible(False)
    for row, code in enumerate(CODES):
        for start, holdout in ((1, BOX), (5, CROSS)):
            image = _error_and_drawings(axes[row, start : start + 4], result, code, holdout)
        letter(axes[row, 1], "bc"[row], f"{code} code, box held out")
        axes[row, 5].set_title("cross held out", loc="left", fontsize=9)
    return image


def _error_and_drawings(axes: np.ndarray, result: xarray.Dataset, code: str, holdout: str) -> Any:
    """Plot an error map in the first axes, and outputs at held-out positions in the others."""
    own = result.sel(encoding=code, holdout=holdout, region=holdout)
    for k, ax in enumerate(axes[1:]):
        held_out_drawing(ax, own["drawing"].isel(sample=k).values, own, k)
    return grid_image(axes[0], own["mean_error"].values, own, vmin=0, vmax=1.5, cmap="viridis")


def _other_row(figure: SubFigure, result: xarray.Dataset) -> None:
    """Plot the other encodings with the box held out, and errors by distance from the kept region."""
    others = [str(code) for code in result["encoding"].values if code not in CODES]
    left, right = divided(figure, 1, 2, width_ratios=[4.4, 1.7])
    axes = left.subplots(1, 3 * len(others))
    for k, code in enumerate(others):
        _error_and_drawings(axes[3 * k : 3 * k + 3], result, code, BOX)
        axes[3 * k].set_title(f"{code} code", loc="left", fontsize=9)
    ax, boxed = right.subplots(), result["distance_over_blank"].sel(holdout=BOX)
    for code in boxed["encoding"].values:
        band(ax, boxed.sel(encoding=code), str(code), CODE_COLORS[str(code)], markersize=2.5)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("px from kept", fontsize=7)
    ax.set_title("error / blank", loc="left", fontsize=9)
    right.legend(fontsize=6, loc="outside right center", handlelength=1)


def encodings_caption(result: xarray.Dataset, superposition: xarray.Dataset) -> str:
    box, cross = (result.sel(holdout=holdout) for holdout in (BOX, CROSS))
    seeds, crossed = (int(own["ood_over_blank"].notnull().sum("seed").max()) for own in (box, cross))
    return (
        "(a) Combinations kept for training or held out; (b, c) squared error over the grid relative to a blank image "
        f"(mean over {seeds} seeds; cross: {crossed}) and the first seed's outputs, white at their brightest pixel, at "
        f"held-out positions (crosses); {SUPERPOSITION_WORDS}."
    )


def encodings_table(result: xarray.Dataset, superposition: xarray.Dataset) -> list[list[str]]:
    box = result.sel(holdout=BOX).mean("seed")
    errors = {"held-out error / blank": ("ood_over_blank", 2), "kept error / blank": ("id_over_blank", 4)}
    rows = [
        [f"{words}, {code}", cell(box[name].sel(encoding=code), digits)]
        for words, (name, digits) in errors.items()
        for code in box["encoding"].values
    ]
    return [["box held out", "mean"], *rows, *superposition_rows(superposition)]


def conventions_figure(encodings: xarray.Dataset, depth: xarray.Dataset) -> Figure:
    """Compare the paper's conventions (polarity, derivatives, averaging, probe) with those of the published scripts."""
    own = depth.sel(encoding="bump", depth=int(depth.attrs["shown"]))
    with styled():
        figure, axes = pyplot.subplots(1, 4, figsize=(11.2, 3.0), layout="constrained")
        both = _polarities(encodings)
        errors = dict(zip(("bright (paper)", "dark (scripts)"), (values.values for values in both), strict=True))
        panels.group_dots(axes[0], errors, COLORS[:2])
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
            ax.set(title=title, xlabel="stage (0: input)")
            ax.legend(fontsize=7)
        axes[3].set_ylim(max(-0.5, axes[3].get_ylim()[0]), 1.05)
    return figure


def _polarities(encodings: xarray.Dataset) -> tuple[xarray.DataArray, ...]:
    """Return held-out errors with bright and with dark bumps, for seeds trained on both."""
    over = encodings["ood_over_blank"].sel(encoding="bump")
    return panels.of_shared_seeds(over.sel(holdout=BOX), over.sel(holdout=DARK))


def conventions_caption(encodings: xarray.Dataset, depth: xarray.Dataset) -> str:
    shown, (bright, _) = int(depth.attrs["shown"]), _polarities(encodings)
    return (
        f"A bump-coded CNN of depth {shown} by the paper's conventions and by those of the published scripts: the "
        f"error over the {seed_count(bright)} trained both ways, the rest over "
        f"{seed_count(depth['spread'].sel(encoding='bump', depth=shown))}."
    )


def conventions_table(encodings: xarray.Dataset, depth: xarray.Dataset) -> list[list[str]]:
    own = depth.sel(encoding="bump", depth=int(depth.attrs["shown"])).mean("seed").isel(stage=slice(1, None))
    bright, dark = _polarities(encodings)
    values = {
        "held-out error / blank, bright bumps (paper)": bright,
        "dark bumps (scripts)": dark,
        "spread of log10 dv, finite differences over exact, mean over layers": own["spread_differences"]
        / own["spread"],
        "factorization, mean over points (paper), mean over layers": own["factorization"],
        "ratio of means (scripts)": own["factorization_of_means"],
        "finite differences": own["factorization_differences"],
        "probe R² at its lowest layer, in sample (paper)": own["probe_in_sample"].min(),
        "held-out points": own["probe_held_out"].min(),
    }
    return [["quantity", "mean"], *([words, cell(value.mean(), 3)] for words, value in values.items())]


FIGURES = (
    FigureSpec(
        "fig1", "Networks with disentangled encodings do not compose", ("encodings", "superposition"), encodings_figure,
        encodings_caption, encodings_table,
    ),
    FigureSpec(
        "conventions", "Conventions in the paper and in the published scripts", ("encodings", "depth"),
        conventions_figure, conventions_caption, conventions_table,
    ),
)  # fmt: skip
