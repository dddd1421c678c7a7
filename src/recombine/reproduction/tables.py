"""Reading a study's Dataset: numbers per seed, and how they change along stages. No torch here.

Conventions: the dimension is `stage`. Stage 0 is the input, whose value is given by construction; it is left out
everywhere. Then come the hidden stages, and the output last; networks of fewer stages than the deepest have trailing
NaN. Other dimensions are kept, and a network without the stages that a number needs has NaN. *Relative depth* is 0 at
the first hidden stage and 1 at the output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import xarray

QUARTER = 0.25
"""Of relative depth."""


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


def first_hidden(values: xarray.DataArray) -> xarray.DataArray:
    """The value at the first hidden stage."""
    own = _own(values)
    return own.isel(stage=0).where(_last(own) >= 1)


def middle_hidden(values: xarray.DataArray) -> xarray.DataArray:
    """The value half-way between first and last hidden stage; of two, the earlier one."""
    return _at(values, lambda last: (last - 1) // 2)


def last_hidden(values: xarray.DataArray) -> xarray.DataArray:
    """The value at the last hidden stage, the one before the output."""
    return _at(values, lambda last: last - 1)


def output(values: xarray.DataArray) -> xarray.DataArray:
    """The value at the output, each network's last stage."""
    return _at(values, lambda last: last)


def mean_after_input(values: xarray.DataArray) -> xarray.DataArray:
    """Mean over the hidden stages and the output."""
    own = _own(values)
    return own.mean("stage").where(_last(own) >= 1)


def mean_of_hidden(values: xarray.DataArray) -> xarray.DataArray:
    """Mean over the hidden stages, without the output."""
    own = _own(values)
    return own.where(_numbers(own) < _last(own)).mean("stage")


def fall(values: xarray.DataArray) -> xarray.DataArray:
    """By how much the value falls from the first hidden stage to the output; negative where it rises."""
    return first_hidden(values) - output(values)


def largest_drop(values: xarray.DataArray) -> xarray.DataArray:
    """The largest fall from one stage to the next, from the first hidden stage on; negative where all steps rise."""
    return -_own(values).diff("stage").min("stage")


def last_two_less_others(values: xarray.DataArray) -> xarray.DataArray:
    """Mean of the last hidden stage and the output, less the mean of the hidden stages before them."""
    own = _own(values)
    late = _numbers(own) >= _last(own) - 1
    return own.where(late).mean("stage", skipna=True).where(_last(own) >= 1) - own.where(~late).mean("stage")


def total_variation(values: xarray.DataArray) -> xarray.DataArray:
    """Sum of the absolute changes from stage to stage, from the first hidden stage on."""
    own = _own(values)
    return abs(own.diff("stage")).sum("stage").where(_last(own) >= 1)


def unevenness(values: xarray.DataArray) -> xarray.DataArray:
    """Largest share of the total variation that lies within a quarter of relative depth, wherever the quarter begins.

    Between stages the value is taken to change evenly. One that changes evenly all along has ¼, and so has one that
    does not change; one that changes within a quarter has 1. A network of few stages cannot have all: with s steps from
    the first hidden stage to the output, s < 4, at most s / 4 lies within a quarter. Compare networks of the same
    depth.
    """
    import xarray

    return xarray.apply_ufunc(_largest_share, _own(values), input_core_dims=[["stage"]], vectorize=True)


def _largest_share(row: np.ndarray) -> float:
    """The largest share of one network's variation within a quarter of its relative depth."""
    (stages,) = np.nonzero(~np.isnan(row))
    if len(stages) < 2 or stages[0] != 0:
        return np.nan
    depths = stages / stages[-1]
    variation = np.concatenate([[0.0], np.abs(np.diff(row[stages])).cumsum()])
    if variation[-1] == 0:
        return QUARTER
    begins = np.clip(np.concatenate([depths, depths - QUARTER]), 0, 1 - QUARTER)  # the largest has a stage at an end
    within = np.interp(begins + QUARTER, depths, variation) - np.interp(begins, depths, variation)
    return float(within.max() / variation[-1])


def _own(values: xarray.DataArray) -> xarray.DataArray:
    """All stages but the input, without labels."""
    return values.isel(stage=slice(1, None)).drop_vars("stage", errors="ignore")


def _numbers(own: xarray.DataArray) -> xarray.DataArray:
    import xarray

    return xarray.DataArray(np.arange(own.sizes["stage"]), dims="stage")


def _last(own: xarray.DataArray) -> xarray.DataArray:
    """Number of each network's last stage; NaN where it has no value."""
    return _numbers(own).where(own.notnull()).max("stage")


def _at(values: xarray.DataArray, number: Callable[[xarray.DataArray], xarray.DataArray]) -> xarray.DataArray:
    """The value at a stage of each network whose number follows from that of the last; NaN where it has none."""
    own = _own(values)
    return own.where(_numbers(own) == number(_last(own))).sum("stage", min_count=1)
