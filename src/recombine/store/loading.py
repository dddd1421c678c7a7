"""Finished runs as one table: a pandas DataFrame, an xarray Dataset, or a Parquet file.

A row per run, oldest first: its status, every field of its spec by its dotted name, scores, and when it finished.
A field that is a number in one run and a list in another (a hold-out's bounds) is a text of JSON in Parquet, whose
columns have one type.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from recombine.checks import given_path, items, one_of
from recombine.errors import InvalidValue, RecombineError, listed
from recombine.files import write
from recombine.store.catalogue import Listing
from recombine.store.run import SCORES
from recombine.store.store import Store

if TYPE_CHECKING:
    import pandas
    import xarray

Form = Literal["frame", "dataset"]
FORMS: tuple[Form, ...] = ("frame", "dataset")
PARQUET = ".parquet"


@overload
def load(
    store: Store | str | os.PathLike[str] | None = ..., where: str | None = ..., *, form: Literal["frame"] = ...,
    to: str | os.PathLike[str] | None = ...,
) -> pandas.DataFrame: ...  # fmt: skip
@overload
def load(
    store: Store | str | os.PathLike[str] | None = ..., where: str | None = ..., *,
    form: Literal["dataset"], arrays: Sequence[str] = ...,
) -> xarray.Dataset: ...  # fmt: skip
def load(
    store: Store | str | os.PathLike[str] | None = None, where: str | None = None, *,
    form: Form = "frame", arrays: Sequence[str] = (), to: str | os.PathLike[str] | None = None,
) -> pandas.DataFrame | xarray.Dataset:  # fmt: skip
    """Finished runs of a store as one table.

    Parameters
    ----------
    store
        A store or its path. Default: `RECOMBINE_STORE`, or `./runs`.
    where
        An expression that the runs meet, as `encoding == 'bump' and depth >= 4`. Default: all of them.
    form
        `frame`: a DataFrame, with keys as index. `dataset`: a Dataset along `run`, with scores as variables and fields
        as coordinates.
    arrays
        Of a Dataset: arrays that are read from the runs themselves, as `error` and `hit` (by point) or `history` (by
        epoch). Shorter ones are filled up with NaN.
    to
        Of a DataFrame: a file, ending in `.parquet`, that the table is written to as well; needs
        `pip install pyarrow`.

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

    The table as a file: `rc.load("runs", to="runs.parquet")`.
    """
    one_of("form", form, FORMS)
    arrays = items("arrays", arrays, str, example="names, as ['error', 'history']")
    if arrays and form != "dataset":
        raise InvalidValue("arrays", list(arrays), "form='dataset'")
    path = None if to is None else given_path("to", to)
    if path is not None and (form != "frame" or path.suffix != PARQUET):
        raise InvalidValue("to", str(path), f"a file ending in {PARQUET}, and form='frame'")
    opened = store if isinstance(store, Store) else Store(store, create=False)
    listing = opened.listing(where=where)
    if form == "dataset":
        return _dataset(opened, listing, arrays)
    table = frame(listing)
    if path is not None:
        write(path, parquet(table), "to")
    return table


def parquet(table: pandas.DataFrame, *, index: bool = True) -> bytes:
    """A table as Parquet has it: columns of mixed types, and lists, as texts of JSON."""
    mixed = {name: _texts(table[name]) for name in table if _is_mixed(table[name])}
    content = io.BytesIO()
    try:
        table.assign(**mixed).to_parquet(content, index=index)
    except ImportError:
        raise RecombineError("to: Parquet needs pyarrow; pip install pyarrow") from None
    return content.getvalue()


def _is_mixed(column: pandas.Series) -> bool:
    kinds = {type(value) for value in column if value is not None} if column.dtype == object else set()
    return len(kinds) > 1 or bool(kinds & {list, dict})


def _texts(column: pandas.Series) -> list[str | None]:
    return [None if value is None else json.dumps(value) for value in column]


def frame(listing: Listing) -> pandas.DataFrame:
    """A listing as a DataFrame with keys as index."""
    import pandas

    index = pandas.Index([row.key for row in listing.rows], name="key", dtype=object)
    columns = _columns(listing)
    for name in SCORES:
        if name in columns:
            columns[name] = np.array(columns[name], dtype=float)  # NaN where a region is empty
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
    scores = {name: ("run", table[name].to_numpy()) for name in SCORES if name in table}
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
