"""Numbers per seed that the claims on superposition are about, from the Dataset of one arm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recombine.papers.forced_rendering.superposition.labels import CONTRASTS, COSINE, SIMILARITIES

if TYPE_CHECKING:
    import xarray

SHIFT_LEVEL = 0.05
"""Share of shifted kernels that may agree as well as the OR kernel does."""


def superposed(networks: xarray.Dataset) -> xarray.DataArray:
    """Variance explained by training images that share x or y, less by as many that share neither."""
    return networks["matched"] - networks["mismatched"]


def superposed_outputs(networks: xarray.Dataset) -> xarray.DataArray:
    """The same of the network's own outputs in the place of training images."""
    return networks["own_matched"] - networks["own_mismatched"]


def equally_superposed(networks: xarray.Dataset) -> xarray.DataArray:
    """Variance explained by the sum of all outputs that share x or y, less by that of another point."""
    return networks["memorised"] - networks["memorised_null"]


def averages_superposed(networks: xarray.Dataset) -> xarray.DataArray:
    """Variance explained by D(x̄) + D(ȳ), less by that of another point."""
    return networks["averaged"] - networks["averaged_null"]


def beyond_truth(networks: xarray.Dataset) -> xarray.DataArray:
    """Variance that matching training images explain beyond the true image."""
    return networks["beyond_truth"]


def over_truth(networks: xarray.Dataset) -> xarray.DataArray:
    """Variance that matching training images explain, less what the true image does."""
    return networks["matched"] - networks["truth"]


def over_product(networks: xarray.Dataset, similarity: str = COSINE) -> xarray.DataArray:
    """Correlation of the OR kernel less that of the product kernel."""
    return _agreement(networks, "or", similarity) - _agreement(networks, "product", similarity)


def over_radial(networks: xarray.Dataset, similarity: str = COSINE) -> xarray.DataArray:
    """Correlation of the OR kernel less that of the radial kernel."""
    return _agreement(networks, "or", similarity) - _agreement(networks, "radial", similarity)


def over_rivals(networks: xarray.Dataset, similarity: str = COSINE) -> xarray.DataArray:
    """Correlation of the OR kernel less that of the better of product and radial kernels."""
    product, radial = over_product(networks, similarity), over_radial(networks, similarity)
    return product.where(product < radial, radial)


def binary_kernel(networks: xarray.Dataset) -> xarray.DataArray:
    """`over_rivals`; at most 0 where OR kernels that are shifted over the grid agree as well as it does."""
    margin = over_rivals(networks)
    return margin.where(networks["kernel_p"] < SHIFT_LEVEL, margin.clip(max=0))


def contrast(networks: xarray.Dataset, blocks: str = COSINE) -> xarray.DataArray:
    """Block contrast."""
    return networks["block_contrast"].isel(blocks=CONTRASTS.index(blocks))


def several_peaks(networks: xarray.Dataset) -> xarray.DataArray:
    """Share of interior outputs with at least two separate peaks."""
    return networks["several_peaks"]


def aligned_artefacts(networks: xarray.Dataset) -> xarray.DataArray:
    """Share of peaks off the truth that lie in the true row or column, less chance."""
    return networks["away_aligned"] - networks["away_chance"]


def _agreement(networks: xarray.Dataset, family: str, similarity: str) -> xarray.DataArray:
    return networks[f"kernel_{family}"].isel(similarity=SIMILARITIES.index(similarity))
