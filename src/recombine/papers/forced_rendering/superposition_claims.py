"""Claims and figures about what failing networks draw instead, and about their kernels.

Everything is measured in the interior of the hold-out. The first case of a claim is the bump-coded, default-depth CNN.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.figure import Figure, SubFigure

from recombine.panels import COLORS, HOLDOUT_COLOR, band, bare, divided, drawn_image, seed_count, styled
from recombine.papers.forced_rendering import samples
from recombine.papers.forced_rendering import superposition as measures
from recombine.papers.forced_rendering.presets import CODES
from recombine.papers.forced_rendering.superposition import CNN_ARM, COSINE, SHOWN_THRESHOLD, overlap, superposed
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import above, effect
from recombine.reproduction.figures import FigureSpec

SUPERPOSED = 0.2
"""Smallest relevant difference in variance explained."""
RIVALS = ("product", "radial")


def _networks(data: Data, code: str = "bump", decoder: str = CNN_ARM) -> xarray.Dataset:
    return data["superposition"].sel(encoding=code, decoder=decoder)


def _of(data: Data, statistic: samples.Statistic, code: str = "bump", **options: str) -> Sample:
    return samples.measured(_networks(data, code), partial(statistic, **options) if callable(statistic) else statistic)


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
    forms: dict[str, samples.Statistic] = {
        "of the network's own outputs": lambda own: own["own_matched"] - own["own_mismatched"],
        "equal weights": lambda own: own["memorised"] - own["memorised_null"],
        "D(x̄) + D(ȳ)": lambda own: own["averaged"] - own["averaged_null"],
        "beyond the truth": "beyond_truth",
        "less the truth": lambda own: own["matched"] - own["truth"],
    }
    cases = {f"{code}, {words}": _of(data, form, code) for code in CODES for words, form in forms.items()}
    for code in CODES:
        networks = _networks(data, code)
        share = samples.majority(superposed(networks) - SUPERPOSED, networks)
        words = f"share of networks in which it exceeds {SUPERPOSED}, less a half"
        cases[f"{code}, share of seeds less a half"] = replace(share, measures=words)
    return {**cases, **_others(data, superposed, *CODES)}


def over_rival(networks: xarray.Dataset, rival: str, similarity: str = COSINE) -> xarray.DataArray:
    """Return the correlation of the OR kernel minus that of another family."""
    agreement = networks.isel(similarity=measures.SIMILARITIES.index(similarity))
    return agreement["kernel_or"] - agreement[f"kernel_{rival}"]


def over_rivals(networks: xarray.Dataset, similarity: str = COSINE) -> xarray.DataArray:
    """Return the correlation of the OR kernel minus that of the product or radial kernel, whichever is higher."""
    product, radial = (over_rival(networks, rival, similarity) for rival in RIVALS)
    return product.where(product < radial, radial)


def binary_kernel(networks: xarray.Dataset) -> xarray.DataArray:
    """Return `over_rivals`, but at most 0 where at least 5 % of OR kernels shifted over the grid fit as well."""
    margin = over_rivals(networks)
    return margin.where(networks["kernel_p"] < 0.05, margin.clip(max=0))


def contrast(networks: xarray.Dataset, blocks: str = COSINE) -> xarray.DataArray:
    """Return the block contrast."""
    return networks["block_contrast"].isel(blocks=measures.CONTRASTS.index(blocks))


def _bump_less_rate(data: Data, blocks: str, *, dark: bool = False) -> Sample:
    networks = (_networks(data, code, measures.DARK if dark else CNN_ARM) for code in CODES)
    return samples.difference(partial(contrast, blocks=blocks), *networks)


def aligned_artefacts(networks: xarray.Dataset) -> xarray.DataArray:
    """Return the share of peaks away from the true position that lie in the true row or column, minus chance."""
    return networks["away_aligned"] - networks["away_chance"]


_claim = partial(Claim, studies=("superposition",))
CLAIMS = (
    _claim(
        "C2",
        "Held-out outputs superpose memorised ones",
        "§3.3, Fig. 1d",
        (
            Statement(
                effect(
                    "variance explained by training images that share x or y, less by ones that share neither",
                    SUPERPOSED,
                ),
                lambda data: {code: _of(data, superposed, code) for code in CODES},
                _superposed_otherwise,
                partial(samples.less_controls, statistic=superposed),
            ),
        ),
        beside=("controls",),
    ),
    _claim(
        "C3",
        "The learnt kernel is a binary factorized one",
        "§3.3, Fig. 1e",
        (
            Statement(
                effect("correlation of the OR kernel less that of the better of product and radial kernels", 0.05),
                lambda data: {"bump": _of(data, binary_kernel)},
                lambda data: {
                    **{f"bump, {name}": _of(data, over_rivals, similarity=name) for name in measures.SIMILARITIES[1:]},
                    **{
                        f"bump, less the {rival} kernel alone": _of(data, partial(over_rival, rival=rival))
                        for rival in RIVALS
                    },
                    "rate": _of(data, binary_kernel, "rate"),
                },
                partial(samples.less_controls, statistic=over_rivals),
            ),
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
            Statement(
                above("share of interior outputs with two or more separate peaks", 0.25),
                lambda data: {"bump": _of(data, "several_peaks")},
                partial(_others, statistic="several_peaks"),
            ),
            Statement(
                effect("peaks off the truth within 1 px of its row or column, over chance", 0.2),
                lambda data: {"bump": _of(data, aligned_artefacts)},
                partial(_others, statistic=aligned_artefacts),
            ),
        ),
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


def superposition_words(result: xarray.Dataset) -> str:
    """Return the caption of Fig. 1d–e."""
    networks = result.sel(encoding="bump", decoder=CNN_ARM)
    matched, mismatched, truth = (
        f"{100 * networks[name].mean().item():.0f} %" for name in ("matched", "mismatched", "truth")
    )
    shown, cosine = (
        " and ".join(f"{over_rival(networks, rival, name).mean().item():.2f}" for rival in RIVALS)
        for name in (overlap(SHOWN_THRESHOLD), COSINE)
    )
    return (
        "(d) An output in the box, the outputs for each factor with the other one averaged out, and the best "
        "non-negative sum of training images that share x or y. In the interior of the box such sums explain "
        f"{matched} of the outputs' variance, sums of equally many that share neither {mismatched} (difference "
        f"{superposed(networks).mean().item():.2f}, {seed_count(networks['matched'])}), and the true images {truth}. "
        f"(e) The binary kernel, overlap of pixels above {SHOWN_THRESHOLD:g} of a bump's height, and cosine similarity "
        "between held-out and kept outputs. Right: how much better the smoothed binary (OR) kernel correlates with the "
        "overlap in the interior than product and radial kernels do, by threshold (at "
        f"{SHOWN_THRESHOLD:g}: {shown}; for cosine similarity: {cosine})."
    )


def kernels_figure(result: xarray.Dataset) -> Figure:
    """Draw Fig. 8: three matrices for the bump code (top) and the rate code (bottom)."""
    kept = int(result.attrs["kept"])
    with styled():
        figure, axes = pyplot.subplots(2, 3, figsize=(7.6, 5.2), layout="constrained")
        for row, code in zip(axes, CODES, strict=True):
            for ax, kernel in zip(row, measures.KERNELS, strict=True):
                values = result["gram"].sel(encoding=code, kernel=kernel).values
                off_diagonal = values[~np.eye(len(values), dtype=bool)]
                top = float(np.percentile(off_diagonal, 99.8)) or float(values.max()) or 1.0
                image = ax.imshow(values, cmap="magma", vmin=0, vmax=top)
                for draw in (ax.axhline, ax.axvline):
                    draw(kept - 0.5, color=HOLDOUT_COLOR, linewidth=0.9, linestyle=(0, (3, 2)))
                bare(ax)
                figure.colorbar(image, ax=ax, shrink=0.8)
            row[0].set_ylabel(f"{code} code\nkept, then held out")
        for ax, title in zip(axes[0], measures.KERNELS.values(), strict=True):
            ax.set_title(title)
    return figure


def kernels_caption(result: xarray.Dataset) -> str:
    networks = result.sel(decoder=CNN_ARM)
    words = []
    for kernel, name in (("cosine", COSINE), ("l2", measures.DISTANCE), ("overlap", overlap(SHOWN_THRESHOLD))):
        bump, rate = (contrast(networks.sel(encoding=code), name).mean().item() for code in CODES)
        words.append(f"{measures.KERNELS[kernel]} {bump:.2f} against {rate:.2f}")
    return (
        "Matrices over the grid for the first seed's outputs, kept combinations before held-out ones (dashed). Block "
        "contrast between held-out and kept outputs (similarity of pairs that share x or y minus that of pairs that "
        "share neither, over its standard deviation), mean over "
        f"{seed_count(networks['block_contrast'].sel(encoding='bump'))}, bump against rate code: {'; '.join(words)}."
    )


FIGURES = (
    FigureSpec(
        "fig8", "Similarity, distance and overlap of all outputs", ("superposition",), kernels_figure, kernels_caption
    ),
)
