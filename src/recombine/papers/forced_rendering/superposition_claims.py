"""Claims and figures about what failing networks draw instead, and about their kernels.

Everything is measured in the interior of the hold-out. The first case of a claim is the bump-coded, default-depth CNN.
Claims about why networks fail are specific if failing networks have more of a statistic than composing ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.figure import Figure, SubFigure

from recombine.metrics.errors import MARGIN
from recombine.panels import (
    COLORS,
    HOLDOUT_COLOR,
    band,
    bare,
    color_bar,
    divided,
    drawn_image,
    seed_count,
    styled,
)
from recombine.papers.forced_rendering import samples
from recombine.papers.forced_rendering import superposition as measures
from recombine.papers.forced_rendering.presets import CODES
from recombine.papers.forced_rendering.superposition import CNN_ARM, COSINE, SHOWN_THRESHOLD, overlap, superposed
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import Criterion, above, effect
from recombine.reproduction.figures import FigureSpec, cell

SUPERPOSED = 0.2
"""Smallest relevant difference in variance explained."""
RIVALS = ("product", "radial")
"""Kernels with which the OR kernel is compared over held-out and kept outputs, where its sum form equals it."""
BESIDE_SUM = "less the sum kernel, held-out outputs"


def _networks(data: Data, code: str = "bump", decoder: str = CNN_ARM) -> xarray.Dataset:
    return data["superposition"].sel(encoding=code, decoder=decoder)


def _of(data: Data, words: str, statistic: samples.PerSeed, code: str = "bump") -> dict[str, Sample]:
    return samples.case(words, lambda: samples.measured(_networks(data, code), statistic))


def _others(data: Data, statistic: samples.Statistic, *besides: str) -> dict[str, Sample]:
    """Return samples for all codes except bump and `besides`, and for other decoders with bump codes."""
    result = data["superposition"].drop_sel(decoder=measures.DARK, errors="ignore")
    codes, decoders = result.sel(decoder=CNN_ARM), result.sel(encoding="bump").drop_sel(decoder=CNN_ARM)
    return {
        **samples.measured_by(codes.drop_sel(encoding=["bump", *besides]), statistic, "{encoding}", "encoding"),
        **samples.measured_by(decoders, statistic, "bump, {decoder}", "decoder"),
    }


def _superposed_otherwise(data: Data) -> dict[str, Sample]:
    """Return results for other forms of superposition, the share of seeds, and other codes and decoders."""
    forms: dict[str, samples.PerSeed] = {
        "of the network's own outputs": lambda own: own["own_matched"] - own["own_mismatched"],
        "equal weights": lambda own: own["memorised"] - own["memorised_null"],
        "D(x̄) + D(ȳ)": lambda own: own["averaged"] - own["averaged_null"],
        "beyond the truth": lambda own: own["beyond_truth"],
        "less the truth": lambda own: own["matched"] - own["truth"],
    }
    cases: dict[str, Sample] = {}
    for code in CODES:
        for words, form in forms.items():
            cases |= _of(data, f"{code}, {words}", form, code)
    for code in CODES:
        networks = _networks(data, code)
        share = samples.majority(superposed(networks) - SUPERPOSED, networks)
        words = f"share of networks in which it exceeds {SUPERPOSED}, less a half"
        cases[f"{code}, share of seeds less a half"] = replace(share, measures=words)
    return {**cases, **_others(data, superposed, *CODES)}


def over_rival(networks: xarray.Dataset, rival: str, similarity: str = COSINE) -> xarray.DataArray:
    """Return the correlation of the OR kernel minus that of another family."""
    return (networks["kernel_or"] - networks[f"kernel_{rival}"]).sel(similarity=similarity, drop=True)


def over_rivals(networks: xarray.Dataset, similarity: str = COSINE, rivals: Sequence[str] = RIVALS) -> xarray.DataArray:
    """Return the correlation of the OR kernel minus the highest one of its rivals."""
    margins = [over_rival(networks, rival, similarity) for rival in rivals]
    return reduce(lambda one, other: one.where(one < other, other), margins)


def binary_kernel(networks: xarray.Dataset, shifted: float) -> xarray.DataArray:
    """Return `over_rivals`, but at most 0 where at least that share of OR kernels shifted over the grid fit as well."""
    margin = over_rivals(networks)
    return margin.where(networks["kernel_p"] < shifted, margin.clip(max=0))


def over_sum(networks: xarray.Dataset, similarity: str = COSINE, within: int = measures.NEAR) -> xarray.DataArray:
    """Return the correlation of the OR kernel minus that of the sum kernel, among held-out points a few steps apart."""
    return over_rival(networks, "sum", measures.near(similarity, within))


def _binary(data: Data, *, shifted: float, within: int) -> dict[str, Sample]:
    """Return the two halves of C3: the OR kernel against products and radial kernels, and against sums."""
    first = _of(data, "bump", partial(binary_kernel, shifted=shifted))
    return first | _of(data, f"bump, {BESIDE_SUM}", partial(over_sum, within=within))


def _binary_otherwise(data: Data, *, shifted: float, within: int) -> dict[str, Sample]:
    """Return results for other similarities, single rivals, all rivals over near outputs, and the rate code."""
    cases: dict[str, Sample] = {}
    for name in (*measures.SIMPLE[1:], measures.ALL_ROWS, measures.STANDARDISED):
        cases |= _of(data, f"bump, {name}", partial(over_rivals, similarity=name))
    for name in measures.SIMPLE[1:]:
        statistic = partial(over_sum, similarity=name, within=within)
        cases |= _of(data, f"bump, {BESIDE_SUM}, {name}", statistic)
    for rival in RIVALS:
        cases |= _of(data, f"bump, less the {rival} kernel alone", partial(over_rival, rival=rival))
    near = partial(over_rivals, similarity=measures.near(COSINE, within), rivals=(*RIVALS, "sum"))
    cases |= _of(data, "bump, less all rivals, held-out outputs", near)
    cases |= _of(data, "rate", partial(binary_kernel, shifted=shifted), "rate")
    return cases | _of(data, f"rate, {BESIDE_SUM}", partial(over_sum, within=within), "rate")


def contrast(networks: xarray.Dataset, blocks: str = COSINE) -> xarray.DataArray:
    """Return the block contrast."""
    return networks["block_contrast"].sel(blocks=blocks, drop=True)


def _bump_less_rate(data: Data, blocks: str, *, dark: bool = False) -> Sample:
    networks = (_networks(data, code, measures.DARK if dark else CNN_ARM) for code in CODES)
    return samples.difference(partial(contrast, blocks=blocks), *networks)


def several_peaks(networks: xarray.Dataset, threshold: float, of: str, prominence: float) -> xarray.DataArray:
    """Return the share of outputs with two or more peaks above a threshold."""
    return networks["several_peaks"].sel(peaks=measures.peaks(threshold, of, prominence), drop=True)


def aligned_artefacts(networks: xarray.Dataset, threshold: float, of: str, prominence: float) -> xarray.DataArray:
    """Return the share of peaks away from the true position that lie in the true row or column, minus chance."""
    own = networks[["away_aligned", "away_chance"]].sel(peaks=measures.peaks(threshold, of, prominence), drop=True)
    return own["away_aligned"] - own["away_chance"]


def _artefacts(statistic: Callable[..., xarray.DataArray], criterion: Criterion) -> Statement:
    """Return a statement about peaks; alternatives have other thresholds, codes and decoders."""

    def cases(data: Data, **parameters: float | str) -> dict[str, Sample]:
        return _of(data, "bump", partial(statistic, **parameters))

    def alternatives(data: Data, *, threshold: float, of: str, prominence: float) -> dict[str, Sample]:
        found: dict[str, Sample] = {}
        for other, thresholds in measures.PEAK_THRESHOLDS.items():
            for own in thresholds:
                if (own, other) != (threshold, of):
                    values = partial(statistic, threshold=own, of=other, prominence=prominence)
                    found |= _of(data, f"bump, peaks above {own:g} of {other}", values)
        return found | _others(data, partial(statistic, threshold=threshold, of=of, prominence=prominence))

    return Statement(criterion, cases, alternatives)


_claim = partial(Claim, studies=("superposition",))
INTERIOR = f"held-out points with at least {MARGIN} others between them and the kept ones"
SHARING = "variance explained by training images that share x or y, less by ones that share neither"
OVER_RIVALS = "correlation of the OR kernel less that of the better of product and radial kernels"
SEVERAL = "share of interior outputs with two or more separate peaks"
OWN_PEAKS: Mapping[str, float | str] = {"threshold": 0.3, "of": measures.OWN_MAXIMUM, "prominence": 0.1}
TRUE_PEAKS: Mapping[str, float | str] = {"threshold": 0.25, "of": measures.TRUE_HEIGHT, "prominence": 0.1}
CLAIMS = (
    _claim(
        "C2",
        "Held-out outputs superpose memorised ones",
        "§3.3, Fig. 1d",
        (
            Statement(
                effect(SHARING, SUPERPOSED, region=INTERIOR),
                lambda data: {code: samples.measured(_networks(data, code), superposed) for code in CODES},
                _superposed_otherwise,
            ),
            samples.specific(SHARING, SUPERPOSED, superposed, region=INTERIOR),
        ),
        beside=("controls",),
    ),
    _claim(
        "C3",
        "The learnt kernel is a binary factorized one",
        "§3.3, Fig. 1e",
        (
            Statement(
                effect(
                    f"{OVER_RIVALS}, and less that of the sum kernel",
                    0.05,
                    region=INTERIOR,
                    parameters={"shifted": 0.05, "within": 3},
                    cases=("bump", f"bump, {BESIDE_SUM}"),
                    combine="contrast",  # the OR kernel must beat all of its rivals
                ),
                _binary,
                _binary_otherwise,
            ),
            samples.specific(OVER_RIVALS, 0.05, over_rivals, other=samples.UNTRAINED, region=INTERIOR),
        ),
        beside=("controls",),
    ),
    _claim(
        "C14",
        "Bump codes give stronger blocks than rate codes",
        "E.1, Fig. 8",
        (
            Statement(
                effect("block contrast, bump less rate code", 0.1),
                lambda data: {COSINE: _bump_less_rate(data, COSINE)},
                lambda data: {
                    **{name: _bump_less_rate(data, name) for name in measures.CONTRASTS[1:]},
                    **{f"{name}, dark bumps": _bump_less_rate(data, name, dark=True) for name in measures.CONTRASTS},
                },
            ),
        ),
    ),
    _claim(
        "C19",
        "Artefacts are several bumps, aligned with the true x and y",
        "§3.2–3.3",
        (
            _artefacts(several_peaks, above(SEVERAL, 0.25, region=INTERIOR, parameters=OWN_PEAKS)),
            samples.specific(SEVERAL, 0.25, several_peaks, region=INTERIOR, parameters=OWN_PEAKS),
            _artefacts(
                aligned_artefacts,
                effect(
                    "peaks off the truth within 1 px of its row or column, over chance",
                    0.2,
                    region=INTERIOR,
                    parameters=TRUE_PEAKS,
                ),
            ),
        ),
        beside=("controls",),
    ),
)


def superposition_row(figure: SubFigure, result: xarray.Dataset) -> None:
    """Plot an output and its components, Gram matrices, and the OR kernel's advantage against the threshold."""
    left, right = divided(figure, 1, 2, width_ratios=[3.3, 2.6])
    titles = {
        measures.OUTPUT: "(d) output", measures.X_ALONE: "x, mean y", measures.Y_ALONE: "mean x, y",
        measures.SUM: "Σ memories", measures.TRUTH: "truth",
    }  # fmt: skip
    panels = result["panel_image"].sel(encoding="bump")
    for ax, (name, title) in zip(left.subplots(1, 5), titles.items(), strict=True):
        drawn_image(ax, panels.sel(panel=name).values, None, result.attrs["place"])
        ax.set_title(title, loc="left", fontsize=9)
    kept = int(result.attrs["kept"])
    blocks = {"(e) binary": result["binary"].values}
    for kernel, title in (("overlap", f"overlap > {SHOWN_THRESHOLD:g}"), ("cosine", "cosine")):
        blocks[title] = result["gram"].sel(encoding="bump", kernel=kernel).values[kept:, :kept]
    axes = right.subplots(1, 4, width_ratios=[1, 1, 1, 1.3])
    for ax, (title, values) in zip(axes, blocks.items(), strict=False):
        ax.imshow(values, cmap="magma", vmin=0, vmax=np.percentile(values, 99.5) or 1.0, aspect="auto")
        bare(ax)
        ax.set_xlabel("kept")
        ax.set_title(title, loc="left", fontsize=8)
    axes[0].set_ylabel("held out")
    ax, networks = axes[3], result.sel(encoding="bump", decoder=CNN_ARM)
    thresholds = xarray.DataArray(list(measures.THRESHOLDS), dims="threshold", name="threshold")
    for rival, color in zip(RIVALS, COLORS, strict=False):
        margins = [over_rival(networks, rival, overlap(threshold)) for threshold in measures.THRESHOLDS]
        band(ax, xarray.concat(margins, thresholds), f"less {rival}", color, markersize=2.5)
    ax.axhline(0, color="0.7", linewidth=0.8)
    ax.set_xlabel("threshold", fontsize=7)
    ax.set_title("OR's correlation", loc="left", fontsize=8)
    ax.legend(fontsize=5)


SUPERPOSITION_WORDS = (
    "(d) an output in the box, the outputs for each factor with the other one averaged out, the best non-negative sum "
    "of training images that share x or y, and the truth; (e) the binary kernel, overlap of pixels above "
    f"{SHOWN_THRESHOLD:g} of a bump's height, and cosine similarity between held-out and kept outputs, and how much "
    "better the smoothed binary (OR) kernel correlates with the overlap in the interior than product and radial "
    "kernels do"
)
"""Caption of Fig. 1d–e."""


def superposition_rows(result: xarray.Dataset) -> list[list[str]]:
    """Return the rows for Fig. 1d–e of a table of means."""
    networks = result.sel(encoding="bump", decoder=CNN_ARM)
    explained = {
        "sums of training images that share x or y": networks["matched"],
        "sums of as many that share neither": networks["mismatched"],
        "the true images": networks["truth"],
    }
    rows = [
        [f"output variance in the interior explained by {words}", cell(values.mean(), percent=True)]
        for words, values in explained.items()
    ]
    for words, name in ((f"overlap > {SHOWN_THRESHOLD:g}", overlap(SHOWN_THRESHOLD)), ("cosine similarity", COSINE)):
        for rival in RIVALS:
            rows.append([f"OR's correlation with {words} less {rival}", cell(over_rival(networks, rival, name).mean())])
    return rows


def kernels_figure(result: xarray.Dataset) -> Figure:
    """Draw Fig. 8: three matrices for the bump code (top) and the rate code (bottom)."""
    kept = int(result.attrs["kept"])
    with styled():
        figure, axes = pyplot.subplots(2, 3, figsize=(8.6, 5.0), layout="constrained")
        grams = {kernel: result["gram"].sel(encoding=list(CODES), kernel=kernel).values for kernel in measures.KERNELS}
        others = ~np.eye(result["gram"].shape[-1], dtype=bool)
        tops = {kernel: float(np.percentile(values[:, others], 99.8)) or 1.0 for kernel, values in grams.items()}
        images = {}
        for row, code in zip(axes, CODES, strict=True):
            for ax, kernel in zip(row, measures.KERNELS, strict=True):
                image = ax.imshow(grams[kernel][CODES.index(code)], cmap="magma", vmin=0, vmax=tops[kernel])
                for draw in (ax.axhline, ax.axvline):
                    draw(kept - 0.5, color=HOLDOUT_COLOR, linewidth=0.9, linestyle=(0, (3, 2)))
                bare(ax)
                images[kernel] = image
            row[0].set_ylabel(f"{code} code\nkept, then held out")
        for column, (kernel, title) in zip(axes.T, measures.KERNELS.items(), strict=True):
            column[0].set_title(title)
            color_bar(column, images[kernel], "", shrink=0.7)
    return figure


def kernels_caption(result: xarray.Dataset) -> str:
    seeds = seed_count(result["block_contrast"].sel(decoder=CNN_ARM, encoding="bump"))
    return (
        "Matrices over the grid for the first seed's outputs, kept combinations before held-out ones (dashed), and, in "
        "the table, the block contrast between held-out and kept outputs (similarity of pairs that share x or y minus "
        f"that of pairs that share neither, over its standard deviation), mean over {seeds}."
    )


def kernels_table(result: xarray.Dataset) -> list[list[str]]:
    networks = result.sel(decoder=CNN_ARM)
    names = {"cosine": COSINE, "l2": measures.DISTANCE, "overlap": overlap(SHOWN_THRESHOLD)}
    rows = [
        [measures.KERNELS[kernel], *(cell(contrast(networks.sel(encoding=code), name).mean()) for code in CODES)]
        for kernel, name in names.items()
    ]
    return [["block contrast", *(f"{code} code" for code in CODES)], *rows]


FIGURES = (
    FigureSpec(
        "fig8",
        "Similarity, distance and overlap of all outputs",
        ("superposition",),
        kernels_figure,
        kernels_caption,
        kernels_table,
    ),
)
