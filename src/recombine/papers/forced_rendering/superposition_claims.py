"""What the failing networks draw instead, and with which kernel.

All numbers are of the hold-out's interior. The first case of a claim is the bump-coded CNN of the usual depth.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.figure import Figure

from recombine.panels import HOLDOUT_COLOR, bare, seed_count, styled
from recombine.papers.forced_rendering.presets import CODES
from recombine.papers.forced_rendering.samples import (
    Statistic,
    difference,
    less_controls,
    majority,
    measured,
    measured_by,
)
from recombine.papers.forced_rendering.superposition import (
    CNN_ARM,
    CONTRASTS,
    COSINE,
    DARK,
    DISTANCE,
    KERNELS,
    SHOWN_THRESHOLD,
    SIMILARITIES,
    overlap,
)
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import above, effect
from recombine.reproduction.figures import FigureSpec

SUPERPOSED = 0.2
"""Smallest difference of variance explained that matters."""


def _networks(data: Data, code: str = "bump", decoder: str = CNN_ARM) -> xarray.Dataset:
    return data["superposition"].sel(encoding=code, decoder=decoder)


def _of(data: Data, statistic: Statistic, code: str = "bump") -> Sample:
    return measured(_networks(data, code), statistic)


def _others(data: Data, statistic: Statistic, *besides: str) -> dict[str, Sample]:
    """The other codes, but for those in `besides`, and the other decoders with bump codes."""
    result = data["superposition"].drop_sel(decoder=DARK, errors="ignore")
    codes, decoders = result.sel(decoder=CNN_ARM), result.sel(encoding="bump").drop_sel(decoder=CNN_ARM)
    return {
        **measured_by(codes.drop_sel(encoding=["bump", *besides]), statistic, "{encoding}", "encoding"),
        **measured_by(decoders, statistic, "bump, {decoder}", "decoder"),
    }


# -- C2: superposition -----------------------------------------------------------------------------------------------


def superposition_alternatives(data: Data) -> dict[str, Sample]:
    """Other forms of superposition, over the truth, share of seeds, other codes and decoders."""
    forms: dict[str, Statistic] = {
        "of the network's own outputs": lambda own: own["own_matched"] - own["own_mismatched"],
        "equal weights": lambda own: own["memorised"] - own["memorised_null"],
        "D(x̄) + D(ȳ)": lambda own: own["averaged"] - own["averaged_null"],
        "beyond the truth": "beyond_truth",
        "less the truth": lambda own: own["matched"] - own["truth"],
    }
    samples = {f"{code}, {words}": _of(data, form, code) for code in CODES for words, form in forms.items()}
    for code in CODES:
        networks = _networks(data, code)
        samples[f"{code}, share of seeds less a half"] = majority(superposed(networks) - SUPERPOSED, networks)
    return {**samples, **_others(data, superposed, *CODES)}


# -- C3: the kernel, C14: blocks -------------------------------------------------------------------------------------


def _bump_less_rate(data: Data, statistic: Statistic, decoder: str = CNN_ARM) -> Sample:
    return difference(statistic, *(_networks(data, code, decoder) for code in CODES))


SHIFT_LEVEL = 0.05
"""Share of shifted kernels that may agree as well as the OR kernel does."""


def superposed(networks: xarray.Dataset) -> xarray.DataArray:
    """Variance explained by training images that share x or y, less by as many that share neither."""
    return networks["matched"] - networks["mismatched"]


def over_rival(networks: xarray.Dataset, rival: str, similarity: str = COSINE) -> xarray.DataArray:
    """Correlation of the OR kernel less that of another family."""
    agreement = networks.isel(similarity=SIMILARITIES.index(similarity))
    return agreement["kernel_or"] - agreement[f"kernel_{rival}"]


def over_rivals(networks: xarray.Dataset, similarity: str = COSINE) -> xarray.DataArray:
    """Correlation of the OR kernel less that of the better of product and radial kernels."""
    product, radial = (over_rival(networks, rival, similarity) for rival in ("product", "radial"))
    return product.where(product < radial, radial)


def binary_kernel(networks: xarray.Dataset) -> xarray.DataArray:
    """`over_rivals`; at most 0 where OR kernels that are shifted over the grid agree as well as it does."""
    margin = over_rivals(networks)
    return margin.where(networks["kernel_p"] < SHIFT_LEVEL, margin.clip(max=0))


def contrast(networks: xarray.Dataset, blocks: str = COSINE) -> xarray.DataArray:
    """Block contrast."""
    return networks["block_contrast"].isel(blocks=CONTRASTS.index(blocks))


def aligned_artefacts(networks: xarray.Dataset) -> xarray.DataArray:
    """Share of peaks off the truth that lie in the true row or column, less chance."""
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
                superposition_alternatives,
                partial(less_controls, statistic=superposed),
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
                    **{f"bump, {name}": _of(data, partial(over_rivals, similarity=name)) for name in SIMILARITIES[1:]},
                    "bump, less the product kernel alone": _of(data, partial(over_rival, rival="product")),
                    "bump, less the radial kernel alone": _of(data, partial(over_rival, rival="radial")),
                    "rate": _of(data, binary_kernel, "rate"),
                },
                partial(less_controls, statistic=over_rivals),
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
                lambda data: {COSINE: _bump_less_rate(data, contrast)},
                lambda data: {
                    **{name: _bump_less_rate(data, partial(contrast, blocks=name)) for name in CONTRASTS[1:]},
                    **{
                        f"{name}, dark bumps": _bump_less_rate(data, partial(contrast, blocks=name), DARK)
                        for name in CONTRASTS
                    },
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


# -- figure ----------------------------------------------------------------------------------------------------------


def kernels_figure(result: xarray.Dataset) -> Figure:
    """Three matrices for the bump code (top) and the rate code (bottom)."""
    kept = int(result.attrs["kept"])
    with styled():
        figure, axes = pyplot.subplots(2, 3, figsize=(7.6, 5.2), layout="constrained")
        for row, encoding in enumerate(("bump", "rate")):
            for column, kernel in enumerate(KERNELS):
                ax, values = axes[row, column], result["gram"].sel(encoding=encoding, kernel=kernel).values
                off = values[~np.eye(len(values), dtype=bool)]
                top = float(np.percentile(off, 99.8)) or float(values.max()) or 1.0
                image = ax.imshow(values, cmap="magma", vmin=0, vmax=top)
                for draw in (ax.axhline, ax.axvline):
                    draw(kept - 0.5, color=HOLDOUT_COLOR, linewidth=0.9, linestyle=(0, (3, 2)))
                bare(ax)
                figure.colorbar(image, ax=ax, shrink=0.8)
                if row == 0:
                    ax.set_title(KERNELS[kernel])
            axes[row, 0].set_ylabel(f"{encoding} code\nkept, then held out")
    return figure


SHOWN = {"cosine": COSINE, "l2": DISTANCE, "overlap": overlap(SHOWN_THRESHOLD)}
"""Each pictured kernel, and its name among block contrasts."""


def kernels_caption(result: xarray.Dataset) -> str:
    """The block contrasts in words."""
    networks = result.sel(decoder=CNN_ARM)
    seeds = seed_count(networks["block_contrast"].sel(encoding="bump"))
    words = []
    for kernel, name in SHOWN.items():
        means = contrast(networks, name).mean("seed")
        bump, rate = (means.sel(encoding=code).item() for code in ("bump", "rate"))
        words.append(f"{KERNELS[kernel]} {bump:.2f} against {rate:.2f}")
    return (
        "Matrices over the grid for the first seed's outputs, kept combinations before held-out ones (dashed). Block "
        "contrast of held-out with kept outputs (similarity of pairs that share x or y less that of pairs that share "
        f"none, over the spread), mean over {seeds}, bump against rate code: {'; '.join(words)}."
    )


FIGURES = (
    FigureSpec(
        "fig8", "Similarity, distance and overlap of all outputs", ("superposition",), kernels_figure, kernels_caption
    ),
)
