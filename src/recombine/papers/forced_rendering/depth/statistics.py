"""Numbers that the claims on depth are about: one per seed, from the Dataset's part of one code and depth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recombine.reproduction.tables import fall, first_hidden, last_hidden, last_two_less_others, stage_slope
from recombine.reproduction.tables import output as at_output

if TYPE_CHECKING:
    import xarray


def probe_fall(networks: xarray.Dataset) -> xarray.DataArray:
    """Fall of R² on held-out points over the hidden stages."""
    probe = networks["probe_held_out"]
    return first_hidden(probe) - last_hidden(probe)


def probe_fall_to_output(networks: xarray.Dataset) -> xarray.DataArray:
    """Fall of R² on held-out points to the output, whose pixels are read as any stage's units are."""
    return fall(networks["probe_held_out"])


def factorization_fall(networks: xarray.Dataset) -> xarray.DataArray:
    """Fall of F, first hidden stage to output."""
    return fall(networks["factorization"])


def factorization_fall_differences(networks: xarray.Dataset) -> xarray.DataArray:
    """The same by finite differences."""
    return fall(networks["factorization_differences"])


def factorization_fall_of_means(networks: xarray.Dataset) -> xarray.DataArray:
    """The same with the ratio of means over the grid, as the published scripts have it."""
    return fall(networks["factorization_of_means"])


def factorization_fall_to(networks: xarray.Dataset, stage: int) -> xarray.DataArray:
    """Fall of F, first hidden stage to another."""
    own = networks["factorization"]
    return first_hidden(own) - own.isel(stage=stage, drop=True)


def spread_excess(networks: xarray.Dataset) -> xarray.DataArray:
    """Spread of log10 dv about its own region's mean at the output, held-out less kept."""
    return at_output(networks["spread_excess"])


def spread_excess_at(networks: xarray.Dataset, stage: int) -> xarray.DataArray:
    """The same at another stage."""
    return networks["spread_excess"].isel(stage=stage, drop=True)


def spread_rise(networks: xarray.Dataset) -> xarray.DataArray:
    """Rise of the spread over the whole grid: its slope over stages, times the steps from first hidden to output."""
    own = networks["spread"].isel(stage=slice(1, None))
    return stage_slope(own) * (own.notnull().sum("stage") - 1)


def late_cross_terms(networks: xarray.Dataset) -> xarray.DataArray:
    """Normalised |g_xy|, last two stages less the others."""
    return last_two_less_others(networks["cross_term"])


def late_held_out_cross_terms(networks: xarray.Dataset) -> xarray.DataArray:
    """The same over held-out points."""
    return last_two_less_others(networks["cross_term_held"])


def late_lost_factorization(networks: xarray.Dataset) -> xarray.DataArray:
    """|g_xy| over g_xx + g_yy, which is 1 − F."""
    return last_two_less_others(1 - networks["factorization"])
