"""Reading a study's Dataset: numbers per seed, over stages and over depths. No torch here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import xarray


def keep_first(result: xarray.Dataset, *names: str) -> xarray.Dataset:
    """Keep of some large variables the first seed that counts and, as `mean_…`, the mean over seeds."""
    kept = {}
    for name in names:
        kept[name] = first_seed(result[name])
        kept[f"mean_{name}"] = result[name].mean("seed")
    return result.drop_vars(names).assign(kept)


def first_seed(values: xarray.DataArray) -> xarray.DataArray:
    """Each arm's first seed with a value."""
    inner = values.dims[values.dims.index("seed") + 1 :]
    first = values.notnull().any(inner).argmax("seed")
    rest = [dim for dim in values.dims if dim != "seed"]
    return values.isel(seed=first).drop_vars("seed").transpose(*rest)


def listed_attribute(result: xarray.Dataset, name: str) -> list[int]:
    """An attribute that is a list of whole numbers; files give a list of one back as a number."""
    return [int(value) for value in np.atleast_1d(result.attrs[name])]


def stage_slope(values: xarray.DataArray) -> xarray.DataArray:
    """Least-squares slope over the stages that a network has."""
    import xarray

    stage = xarray.DataArray(np.arange(values.sizes["stage"], dtype=float), dims="stage").where(values.notnull())
    centred = stage - stage.mean("stage")
    power = (centred**2).sum("stage")
    return (centred * values).sum("stage") / power.where(power > 0)


def last_stage(values: xarray.DataArray) -> xarray.DataArray:
    """The value at each network's last stage: its output."""
    last = values.notnull().sum("stage") - 1
    return values.isel(stage=last.clip(min=0))


def all_depths(values: xarray.DataArray) -> xarray.DataArray:
    """The mean over depths of the seeds that have a value at each."""
    return values.mean("depth", skipna=False)


def per_seed(values: xarray.DataArray) -> list[float]:
    """A score's values over seeds."""
    return [float(value) for value in values.values]


def log_ratio(above: xarray.DataArray, below: xarray.DataArray) -> list[float]:
    """log10 of one error over another, seed by seed."""
    return [float(value) for value in np.log10(above.values / below.values)]
