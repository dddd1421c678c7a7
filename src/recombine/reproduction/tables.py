"""Statistics of a study's Dataset: values per seed, and how they change from stage to stage.

Conventions: functions reduce the `stage` dimension and keep all others. Stage 0 is the input, whose value is fixed by
construction and ignored here. Hidden stages follow, and the output comes last; networks shallower than the deepest one
are padded with NaN. A network that lacks the stages required by a statistic gets NaN. *Relative depth* is 0 at the
first hidden stage and 1 at the output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import xarray

QUARTER = 0.25  # of relative depth


def keep_first(result: xarray.Dataset, *names: str) -> xarray.Dataset:
    """Reduce large variables to the first seed with a value, and add their means over seeds as `mean_…`."""
    kept = {}
    for name in names:
        values, mean = result[name], result[name].mean("seed")
        inner = values.dims[values.dims.index("seed") + 1 :]
        first = values.notnull().any(inner).argmax("seed")
        kept[name] = values.isel(seed=first).drop_vars("seed").transpose(*mean.dims)
        kept[f"mean_{name}"] = mean
    return result.drop_vars(names).assign(kept)


def listed_attribute(result: xarray.Dataset, name: str) -> list[int]:
    """Return an attribute as a list of integers, since files store single-element lists as numbers."""
    return [int(value) for value in np.atleast_1d(result.attrs[name])]


def stage_slope(values: xarray.DataArray) -> xarray.DataArray:
    """Return the least-squares slope of the values against stage."""
    import xarray

    stage = xarray.DataArray(np.arange(values.sizes["stage"], dtype=float), dims="stage").where(values.notnull())
    centred = stage - stage.mean("stage")
    power = (centred**2).sum("stage")
    return (centred * values).sum("stage") / power.where(power > 0)


def first_hidden(values: xarray.DataArray) -> xarray.DataArray:
    """Return the value at the first hidden stage; NaN where there is none."""
    return _at(values, lambda last: np.where(last >= 1, 0.0, np.nan))


def middle_hidden(values: xarray.DataArray) -> xarray.DataArray:
    """Return the value at the middle hidden stage (the earlier of two middle stages)."""
    return _at(values, lambda last: (last - 1) // 2)


def last_hidden(values: xarray.DataArray) -> xarray.DataArray:
    """Return the value at the last hidden stage, just before the output."""
    return _at(values, lambda last: last - 1)


def output(values: xarray.DataArray) -> xarray.DataArray:
    """Return the value at the output, each network's last stage."""
    return _at(values, lambda last: last)


def mean_after_input(values: xarray.DataArray) -> xarray.DataArray:
    """Return the mean over the hidden stages and the output."""
    own = _after_input(values)
    return own.mean("stage").where(_last(own) >= 1)


def mean_log_after_input(values: xarray.DataArray) -> xarray.DataArray:
    """Return the mean of log10 over the hidden stages and the output, so that no stage dominates; -inf if one is 0."""
    with np.errstate(divide="ignore"):
        return mean_after_input(values.copy(data=np.log10(values.values)))


def mean_of_hidden(values: xarray.DataArray) -> xarray.DataArray:
    """Return the mean over the hidden stages."""
    own = _after_input(values)
    return own.where(own["stage"] < _last(own)).mean("stage")


def fall(values: xarray.DataArray) -> xarray.DataArray:
    """Return the decrease in value from the first hidden stage to the output."""
    return first_hidden(values) - output(values)


def largest_drop(values: xarray.DataArray, *, from_input: bool = False) -> xarray.DataArray:
    """Return the largest decrease between consecutive stages, from the first hidden stage or from the input on."""
    own = values if from_input else _after_input(values)
    return -own.diff("stage").min("stage")


def last_two_less_others(values: xarray.DataArray) -> xarray.DataArray:
    """Return the mean of the last hidden stage and the output, minus the mean of all earlier hidden stages."""
    own = _after_input(values)
    late = own["stage"] >= _last(own) - 1
    return own.where(late).mean("stage", skipna=True).where(_last(own) >= 1) - own.where(~late).mean("stage")


def total_variation(values: xarray.DataArray) -> xarray.DataArray:
    """Return the sum of absolute changes between consecutive stages, from the first hidden stage on."""
    own = _after_input(values)
    return abs(own.diff("stage")).sum("stage").where(_last(own) >= 1)


def unevenness(values: xarray.DataArray) -> xarray.DataArray:
    """Return the largest fraction of the total variation within any quarter of relative depth.

    Values are interpolated linearly between stages. The score is ¼ for a value that changes evenly or not at all, and 1
    for a value that changes only within one quarter. Only networks of equal depth are comparable: with s < 4 steps from
    the first hidden stage to the output, the score is at most s / 4.
    """
    import xarray

    return xarray.apply_ufunc(_largest_share, _after_input(values), input_core_dims=[["stage"]], vectorize=True)


def _largest_share(row: np.ndarray) -> float:
    """Return the largest fraction of one network's variation within any quarter of its relative depth."""
    (stages,) = np.nonzero(~np.isnan(row))
    if len(stages) < 2 or stages[0] != 0:
        return np.nan
    depths = stages / stages[-1]
    variation = np.concatenate([[0.0], np.abs(np.diff(row[stages])).cumsum()])
    if variation[-1] == 0:
        return QUARTER
    # the variation is piecewise linear, so the best quarter begins or ends at a stage
    begins = np.clip(np.concatenate([depths, depths - QUARTER]), 0, 1 - QUARTER)
    within = np.interp(begins + QUARTER, depths, variation) - np.interp(begins, depths, variation)
    return float(within.max() / variation[-1])


def _after_input(values: xarray.DataArray) -> xarray.DataArray:
    """Return all stages except the input, numbered from 0."""
    return values.isel(stage=slice(1, None)).assign_coords(stage=np.arange(values.sizes["stage"] - 1))


def _last(own: xarray.DataArray) -> xarray.DataArray:
    """Return the number of each network's last stage; NaN if it has none."""
    return own["stage"].where(own.notnull()).max("stage")


def _at(values: xarray.DataArray, number: Callable[[np.ndarray], np.ndarray]) -> xarray.DataArray:
    """Return the value at the stage that `number` derives from the last stage; NaN if there is no such stage."""
    # in numpy, since claims call this hundreds of times, which takes xarray seconds
    own = values.isel(stage=slice(1, None)).transpose(..., "stage").values
    stages = np.arange(own.shape[-1], dtype=float)
    present = ~np.isnan(own)
    last = np.where(present, stages, -1.0).max(axis=-1, initial=-1.0)
    wanted = present & (stages == number(np.where(last < 0, np.nan, last))[..., None])
    found = np.where(wanted.any(axis=-1), np.where(wanted, own, 0.0).sum(axis=-1), np.nan)
    return values.isel(stage=0, drop=True).copy(data=found)
