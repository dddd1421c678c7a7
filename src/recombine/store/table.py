"""Finished runs as a pandas DataFrame, which can be filtered by an expression.

Each row is a run, oldest first, with status, every field of the spec by dotted name, scores, and finishing time. Lists
are JSON text, so that columns can be compared and counted. Fields that a run does not have are NaN.
"""

from __future__ import annotations

import ast
import io
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from recombine.errors import InvalidValue, RecombineError, listed, nearest, reason_of
from recombine.store.index import COLUMNS, Row
from recombine.store.names import SCORES

if TYPE_CHECKING:
    import pandas

PARQUET = ".parquet"
PREFIXES = ("", "task.", "recipe.", "decoder.", "task.training.")
"""Prefixes that may be left out of a column's name, as in `encoding`, `lr`, `depth`, `samples`."""
EXAMPLE = "an expression such as \"encoding == 'bump' and depth >= 4\""
ALLOWED = (
    ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE,
    ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Is, ast.IsNot, ast.Constant, ast.List, ast.Tuple, ast.Name, ast.Attribute,
    ast.Load,
)  # fmt: skip
"""Syntax allowed in an expression: no calls or subscripts, since `eval` could run code."""


def table_of(rows: Sequence[Row], where: str | None = None, newest: int | None = None) -> pandas.DataFrame:
    """Return the newest rows of the index for which an expression is true, indexed by key.

    `attrs["matching"]` is the number of all rows for which it is true.
    """
    columns = _Columns(rows)
    at = columns.oldest_first
    if where is not None:
        at = _selected(columns, at, where)
    table = columns.part(columns.names, at if newest is None else at[-newest:])
    table.attrs["matching"] = len(at)
    return table


class _Columns:
    """The columns of a table, built only for the names and rows that are needed, since stores can be large."""

    def __init__(self, rows: Sequence[Row]) -> None:
        import pandas

        flat = json.loads(f"[{','.join(row.values for row in rows)}]")  # much faster than parsing a list per run
        self.values = {name: flat[place :: len(COLUMNS)] for place, name in enumerate(COLUMNS)}
        # Runs that differ only in their seed share their settings, which are parsed once and then repeated.
        numbers = {text: number for number, text in enumerate(dict.fromkeys(row.settings for row in rows))}
        fields = [
            {name: json.dumps(value) if isinstance(value, list) else value for name, value in json.loads(text).items()}
            for text in numbers
        ]
        self.settings, self.number = pandas.DataFrame(fields), np.array([numbers[row.settings] for row in rows], int)
        self.keys = [row.key for row in rows]
        self.names = ["status", *self.settings, "seed", *SCORES, "finished"]
        self.oldest_first = np.argsort(np.array(self.values["finished"], dtype=float), kind="stable")

    def part(self, names: Sequence[str], at: np.ndarray) -> pandas.DataFrame:
        """Return some columns of the rows at these positions."""
        import pandas

        index = pandas.Index([self.keys[row] for row in at], name="key", dtype=object)
        return pandas.DataFrame({name: self._column(name, at) for name in names}, index=index)

    def _column(self, name: str, at: np.ndarray) -> Any:
        import pandas

        if name in self.settings:
            return self.settings[name].array.take(self.number[at])
        values = [self.values[name][row] for row in at]
        if name in ("status", "seed"):
            return values
        numbers = np.array(values, dtype=float)  # NaN where a region is empty
        return pandas.to_datetime(numbers, unit="s", utc=True) if name == "finished" else numbers


def short_name(column: str) -> str:
    """Return the short name of a column, e.g. `encoding` for `task.encoding.kind`."""
    name = column.removesuffix(".kind")
    return name.removeprefix("task.").removeprefix("recipe.").removeprefix("decoder.")


def _selected(columns: _Columns, at: np.ndarray, where: str) -> np.ndarray:
    """Return the positions at which an expression is true, evaluated by `DataFrame.eval`."""
    try:
        tree = ast.parse(where.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidValue("where", where, f"{EXAMPLE} ({reason_of(error)})") from None
    if not all(isinstance(node, (ast.Expression, *ALLOWED)) for node in ast.walk(tree)):
        raise InvalidValue("where", where, f"{EXAMPLE}: column names, constants, comparisons, and, or, not, in")
    if not len(at):
        return at
    named = _Names(columns.names, where)
    text = ast.unparse(named.visit(tree))
    try:
        table = columns.part(list(named.names), at).set_axis(list(named.names.values()), axis=1)
        chosen = np.asarray(table.eval(text, engine="python"))
    except (TypeError, ValueError, KeyError, AttributeError, NotImplementedError, RecursionError) as error:
        raise InvalidValue("where", where, f"{EXAMPLE} ({reason_of(error)})") from None
    if chosen.shape != at.shape or chosen.dtype != bool:
        raise InvalidValue("where", where, f"{EXAMPLE}, which is true or false for every run")
    return at[chosen]


class _Names(ast.NodeTransformer):
    """Replaces column names, which may contain dots, and comparisons with None, which pandas does not support."""

    def __init__(self, known: list[str], where: str) -> None:
        self.known, self.where = known, where
        self.names: dict[str, str] = {}

    def visit_Name(self, node: ast.Name | ast.Attribute) -> ast.expr:
        """Replace a column, given by its full or short name (`task.encoding.kind`, `encoding`)."""
        name = ast.unparse(node)
        candidates = [f"{prefix}{name}{kind}" for prefix in PREFIXES for kind in ("", ".kind")]
        column = next((candidate for candidate in candidates if candidate in self.known), None)
        if column is None:
            names = [short_name(known) for known in self.known]
            instead = nearest(name, names) or listed(names)
            raise InvalidValue("where", self.where, f"an expression over columns (no {name!r}; try {instead})")
        return ast.Name(self.names.setdefault(column, f"column{len(self.names)}"))

    visit_Attribute = visit_Name

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Replace `x == None` and `x is None` by `x.isnull()`."""
        self.generic_visit(node)
        if not any(isinstance(part, ast.Constant) and part.value is None for part in node.comparators):
            return node
        if len(node.ops) > 1 or not isinstance(node.left, ast.Name):
            raise InvalidValue("where", self.where, f"{EXAMPLE}; compare a column with None separately")
        method = "isnull" if isinstance(node.ops[0], ast.Eq | ast.Is) else "notnull"
        return ast.Call(ast.Attribute(node.left, method), [], [])


def parquet(table: pandas.DataFrame) -> bytes:
    """Return a table as Parquet; mixed columns become strings, since a column must have a single type."""
    mixed = {name: table[name].map(str, na_action="ignore") for name in table if table[name].dtype == object}
    content = io.BytesIO()
    try:
        table.assign(**mixed).to_parquet(content)
    except ImportError:
        raise RecombineError("Parquet needs pyarrow: pip install pyarrow") from None
    return content.getvalue()
