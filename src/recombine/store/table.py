"""Finished runs as one table: a pandas DataFrame, an xarray Dataset, or a Parquet file.

A row per run, oldest first: its status, every field of its spec by its dotted name, scores, and when it finished. A
field that is a list is its JSON text, so that columns can be compared and counted. A field that a run does not have, or
that is not set, is missing (NaN).
"""

from __future__ import annotations

import ast
import io
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from recombine.errors import InvalidValue, RecombineError, listed, nearest, reason_of
from recombine.files import write
from recombine.store.index import COLUMNS, Row
from recombine.store.run import SCORES
from recombine.store.store import Store

if TYPE_CHECKING:
    import pandas
    import xarray

PARQUET = ".parquet"
PREFIXES = ("", "task.", "recipe.", "decoder.", "task.training.")
"""Where a column is looked for by a short name, as `encoding`, `lr`, `depth`, `samples`."""
EXAMPLE = "an expression such as \"encoding == 'bump' and depth >= 4\""
ALLOWED = (
    ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE,
    ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Is, ast.IsNot, ast.Constant, ast.List, ast.Tuple, ast.Name, ast.Attribute,
    ast.Load,
)  # fmt: skip
"""What an expression is made of: no calls, no subscripts, nothing that could run code."""


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
    form: Literal["frame", "dataset"] = "frame", arrays: Sequence[str] = (), to: str | os.PathLike[str] | None = None,
) -> pandas.DataFrame | xarray.Dataset:  # fmt: skip
    """Finished runs of a store as one table.

    Parameters
    ----------
    store
        A store or its path. Default: `RECOMBINE_STORE`, or `./runs`.
    where
        An expression over columns that selects runs, as `encoding == 'bump' and depth >= 4`. Default: all runs.
    form
        `frame`: a DataFrame, with keys as index. `dataset`: a Dataset along `run`, with scores as variables and fields
        as coordinates.
    arrays
        Of a Dataset: arrays that are read from the runs themselves, as `error` and `hit` (by point) or `history` (by
        epoch). Shorter ones are padded with NaN.
    to
        Of a DataFrame: a file, ending in `.parquet`, that the table is also written to; needs `pip install pyarrow`.

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
    if form not in ("frame", "dataset"):
        raise InvalidValue("form", form, "'frame' or 'dataset'")
    if arrays and form != "dataset":
        raise InvalidValue("form", form, "'dataset' where arrays are read")
    if to is not None and (form != "frame" or Path(to).suffix != PARQUET):
        raise InvalidValue("to", os.fspath(to), f"a file ending in {PARQUET}, together with form='frame'")
    opened = store if isinstance(store, Store) else Store(store, create=False)
    table = opened.table(where)
    if form == "dataset":
        return _dataset(opened, table, arrays)
    if to is not None:
        write(Path(to), parquet(table), "to")
    return table


def table_of(rows: Sequence[Row]) -> pandas.DataFrame:
    """Rows of the index, in order of their keys, as a table with keys as index."""
    import pandas

    own = json.loads(f"[{','.join(row.own for row in rows)}]")  # one list, as a list per run would take much longer
    values = {name: own[place :: len(COLUMNS)] for place, name in enumerate(COLUMNS)}
    # Runs that differ only in their seed share their settings, which are parsed once and then repeated.
    numbers = {text: number for number, text in enumerate(dict.fromkeys(row.settings for row in rows))}
    settings = pandas.DataFrame([_cells(json.loads(text)) for text in numbers])
    repeated = settings.take([numbers[row.settings] for row in rows])
    finished = np.array(values["finished"], dtype=float)
    columns: dict[str, Any] = {"status": values["status"]}
    columns |= {name: repeated[name].array for name in repeated}
    columns["seed"] = values["seed"]
    columns |= {name: np.array(values[name], dtype=float) for name in SCORES}  # NaN where a region is empty
    columns["finished"] = pandas.to_datetime(finished, unit="s", utc=True)
    keys = pandas.Index([row.key for row in rows], name="key", dtype=object)
    return pandas.DataFrame(columns, index=keys).take(np.argsort(finished, kind="stable"))


def _cells(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of a spec as cells of a table."""
    return {name: json.dumps(value) if isinstance(value, list) else value for name, value in fields.items()}


def short_name(column: str) -> str:
    """A column's name without what goes without saying: `encoding` for `task.encoding.kind`."""
    name = column.removesuffix(".kind")
    return name.removeprefix("task.").removeprefix("recipe.").removeprefix("decoder.")


def selected(table: pandas.DataFrame, where: str) -> pandas.DataFrame:
    """The rows that meet an expression over columns, evaluated by `DataFrame.query`.

    Only names of columns, constants, comparisons and `and`, `or`, `not`, `in` are passed on to it, so that an
    expression is never more than that.
    """
    try:
        tree = ast.parse(where.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidValue("where", where, f"{EXAMPLE} ({reason_of(error)})") from None
    if not all(isinstance(node, (ast.Expression, *ALLOWED)) for node in ast.walk(tree)):
        raise InvalidValue("where", where, f"{EXAMPLE}: column names, constants, comparisons, and, or, not, in")
    if not len(table):
        return table
    columns = _Columns(list(table.columns), where)
    text = ast.unparse(columns.visit(tree))
    try:
        met = table[list(columns.names)].set_axis(list(columns.names.values()), axis=1).query(text, engine="python")
        return table.loc[met.index]
    except (TypeError, ValueError, KeyError, AttributeError, NotImplementedError, RecursionError) as error:
        raise InvalidValue("where", where, f"{EXAMPLE} ({reason_of(error)})") from None


class _Columns(ast.NodeTransformer):
    """Replaces names of columns, which may have dots, by plain ones; and comparisons with None, which pandas lacks."""

    def __init__(self, known: list[str], where: str) -> None:
        self.known, self.where = known, where
        self.names: dict[str, str] = {}

    def visit_Name(self, node: ast.Name | ast.Attribute) -> ast.expr:
        """A column, by its whole name or a short one (`task.encoding.kind`, `encoding`)."""
        name = ast.unparse(node)
        found = [f"{prefix}{name}{kind}" for prefix in PREFIXES for kind in ("", ".kind")]
        column = next((one for one in found if one in self.known), None)
        if column is None:
            names = [short_name(one) for one in self.known]
            instead = nearest(name, names) or listed(names)
            raise InvalidValue("where", self.where, f"an expression over columns (there is no {name!r}, but {instead})")
        return ast.Name(self.names.setdefault(column, f"column{len(self.names)}"))

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """The same with dots; an attribute of a constant is none."""
        return self.visit_Name(node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """`x == None` and `x is None` as `x.isnull()`."""
        self.generic_visit(node)
        if not any(isinstance(own, ast.Constant) and own.value is None for own in node.comparators):
            return node
        if len(node.ops) > 1 or not isinstance(node.left, ast.Name):
            raise InvalidValue("where", self.where, f"{EXAMPLE}; compare a column with None by itself")
        method = "isnull" if isinstance(node.ops[0], ast.Eq | ast.Is) else "notnull"
        return ast.Call(ast.Attribute(node.left, method), [], [])


def parquet(table: pandas.DataFrame, *, index: bool = True) -> bytes:
    """A table as Parquet, whose columns have one type: a column of numbers and strings becomes strings."""
    mixed = {name: table[name].map(str, na_action="ignore") for name in table if table[name].dtype == object}
    content = io.BytesIO()
    try:
        table.assign(**mixed).to_parquet(content, index=index)
    except ImportError:
        raise RecombineError("Parquet needs pyarrow: pip install pyarrow") from None
    return content.getvalue()


def _dataset(store: Store, table: pandas.DataFrame, arrays: Sequence[str]) -> xarray.Dataset:
    import xarray

    table = table.assign(finished=table["finished"].dt.tz_localize(None))
    scores = {name: ("run", table[name].to_numpy()) for name in SCORES if name in table}
    coordinates = {name: ("run", _plain(table[name])) for name in table if name not in scores}
    variables = {name: (("run", f"{name}_index"), _stacked(store, table.index, name)) for name in arrays}
    return xarray.Dataset({**scores, **variables}, coords={"run": table.index.to_numpy(dtype=str), **coordinates})


def _plain(column: pandas.Series) -> np.ndarray:
    """A column as netCDF has it: strings where there are any, empty where a value is missing."""
    if column.dtype.kind in "iufbM":
        return column.to_numpy()
    return column.map(str, na_action="ignore").fillna("").to_numpy(dtype=str)


def _stacked(store: Store, keys: Iterable[str], name: str) -> np.ndarray:
    """One array of every run, padded with NaN."""
    rows = []
    for key in keys:
        held = store.run(key).arrays()
        if name not in held:
            raise InvalidValue("arrays", name, f"among those that runs have: {listed(sorted(held))}")
        rows.append(np.asarray(held[name], dtype=float).ravel())
    stacked = np.full((len(rows), max((len(row) for row in rows), default=0)), np.nan)
    for place, values in enumerate(rows):
        stacked[place, : len(values)] = values
    return stacked
