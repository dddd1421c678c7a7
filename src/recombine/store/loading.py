"""Finished runs as one table: a pandas DataFrame, an xarray Dataset, or a Parquet file.

A row per run, oldest first: its status, every field of its spec by its dotted name, scores, and when it finished.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from recombine.checks import items, one_of
from recombine.errors import InvalidValue, listed
from recombine.store.catalogue import Listing
from recombine.store.run import SCORES
from recombine.store.store import Store

if TYPE_CHECKING:
    import pandas
    import xarray

Form = Literal["frame", "dataset"]
FORMS: tuple[Form, ...] = ("frame", "dataset")


@overload
def load(
    store: Store | str | os.PathLike[str] | None = ..., where: str | None = ..., *, form: Literal["frame"] = ...
) -> pandas.DataFrame: ...
@overload
def load(
    store: Store | str | os.PathLike[str] | None = ..., where: str | None = ..., *,
    form: Literal["dataset"], arrays: Sequence[str] = ...,
) -> xarray.Dataset: ...  # fmt: skip
def load(
    store: Store | str | os.PathLike[str] | None = None, where: str | None = None, *,
    form: Form = "frame", arrays: Sequence[str] = (),
) -> pandas.DataFrame | xarray.Dataset:  # fmt: skip
    """Finished runs of a store as one table.

    Parameters
    ----------
    store
        A store or its path. Default: `RECOMBINE_STORE`, or `./runs`.
    where
        An expression that the runs meet, as `encoding == 'bump' and depth >= 4`. Default: all of them.
    form
        `frame`: a DataFrame, whose `to_parquet(FILE)` writes Parquet. `dataset`: a Dataset along `run`, with scores
        as variables and fields as coordinates.
    arrays
        Of a Dataset: arrays that are read from the runs themselves, as `error` and `hit` (by point) or `history` (by
        epoch). Shorter ones are filled up with NaN.

    Returns
    -------
    pandas.DataFrame or xarray.Dataset
        A row per run, oldest first.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import recombine as rc
    >>> spec = rc.RunSpec(task=rc.BumpTask(size=8), decoder="mlp:width=8:depth=1", recipe=rc.Recipe(steps=2))
    >>> with TemporaryDirectory() as folder:
    ...     runs = rc.train(spec.seeds(range(3)), folder)
    ...     frame = rc.load(folder, "seed > 0")
    ...     dataset = rc.load(folder, form="dataset", arrays=["error"])
    >>> frame["seed"].tolist(), frame["task.encoding.kind"].unique().tolist()
    ([1, 2], ['bump'])
    >>> dict(dataset.sizes), dataset["ood_accuracy"].dims
    ({'run': 3, 'error_index': 64}, ('run',))
    """
    one_of("form", form, FORMS)
    arrays = items("arrays", arrays, str, example="names, as ['error', 'history']")
    if arrays and form != "dataset":
        raise InvalidValue("arrays", list(arrays), "form='dataset'")
    opened = store if isinstance(store, Store) else Store(store, create=False)
    listing = opened.listing(where=where)
    return frame(listing) if form == "frame" else _dataset(opened, listing, arrays)


def frame(listing: Listing) -> pandas.DataFrame:
    """A listing as a DataFrame with keys as index."""
    import pandas

    index = pandas.Index([row.key for row in listing.rows], name="key", dtype=object)
    columns = _columns(listing)
    if finished := columns.pop("finished", None):
        columns["finished"] = pandas.to_datetime(finished, unit="s", utc=True)
    return pandas.DataFrame(columns, index=index)


def _columns(listing: Listing) -> dict[str, Any]:
    """Values by name, column by column; None where a run has no such field."""
    columns: dict[str, list[Any]] = {}
    for count, row in enumerate(listing.rows):
        fields = flattened(row.summary["spec"]) | row.summary["scores"]
        for name, value in {"status": row.summary["status"], **fields, "finished": row.finished}.items():
            if name not in columns:
                columns[name] = [None] * count
            columns[name].append(value)
        for column in columns.values():
            if len(column) == count:
                column.append(None)
    return columns


def _dataset(store: Store, listing: Listing, arrays: Iterable[str]) -> xarray.Dataset:
    import xarray

    table = frame(listing)
    table["finished"] = table["finished"].dt.tz_localize(None) if len(table) else []
    scores = {name: ("run", table[name].astype(float).to_numpy()) for name in SCORES if name in table}
    coordinates = {name: ("run", _plain(table[name])) for name in table if name not in scores}
    variables = {name: (("run", f"{name}_index"), _stacked(store, listing, name)) for name in arrays}
    return xarray.Dataset({**scores, **variables}, coords={"run": table.index.to_numpy(dtype=str), **coordinates})


def _plain(column: pandas.Series) -> np.ndarray:
    """A column as netCDF has it: lists as texts, and texts where there are any."""
    values = column.to_numpy()
    if values.dtype != object:
        return values
    texts = ["" if value is None or value != value else str(value) for value in values]  # NaN: none, among texts
    return np.array(texts, dtype=str)


def _stacked(store: Store, listing: Listing, name: str) -> np.ndarray:
    """One array of every run, filled up with NaN."""
    rows = []
    for row in listing.rows:
        held = store.run(row.key).arrays()
        if name not in held:
            raise InvalidValue("arrays", name, f"what runs here have: {listed(sorted(held))}")
        rows.append(np.asarray(held[name], dtype=float).ravel())
    stacked = np.full((len(rows), max((len(row) for row in rows), default=0)), np.nan)
    for place, values in enumerate(rows):
        stacked[place, : len(values)] = values
    return stacked


def flattened(spec: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested fields as dotted names."""
    fields: dict[str, Any] = {}
    for name, value in spec.items():
        if isinstance(value, Mapping):
            fields.update(flattened(value, f"{prefix}{name}."))
        else:
            fields[prefix + name] = value
    return fields
