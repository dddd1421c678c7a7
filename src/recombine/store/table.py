"""Finished runs as one table: a pandas DataFrame.

A row per run, oldest first: its status, every field of its spec by its dotted name, scores, and when it finished. A
field that is a list is its JSON text, so that columns can be compared and counted. A field that a run does not have, or
that is not set, is missing (NaN).
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
from recombine.store.run import SCORES

if TYPE_CHECKING:
    import pandas

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


def table_of(rows: Sequence[Row]) -> pandas.DataFrame:
    """Rows of the index, in order of their keys, as a table with keys as index."""
    import pandas

    own = json.loads(f"[{','.join(row.own for row in rows)}]")  # at once, which is faster than one by one
    values = dict(zip(COLUMNS, zip(*own, strict=True) if own else [()] * len(COLUMNS), strict=True))
    # Runs that differ only in their seed share their settings, which are parsed once and then repeated.
    numbers = {text: number for number, text in enumerate(dict.fromkeys(row.settings for row in rows))}
    settings = pandas.DataFrame([_cells(json.loads(text)) for text in numbers])
    repeated = settings.take([numbers[row.settings] for row in rows])
    finished = np.array(values["finished"], dtype=float)
    columns: dict[str, Any] = {"status": list(values["status"])}
    columns |= {name: repeated[name].array for name in repeated}
    columns["seed"] = list(values["seed"])
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
