"""Which runs: an expression over fields and scores, evaluated by SQLite.

>>> Query("encoding == 'bump' and depth >= 4 and ood_accuracy > 0.9").names
('encoding', 'decoder.depth', 'ood_accuracy')

The grammar is Python's, without calls and arithmetic: `and`, `or`, `not`, comparisons, `in`, numbers, texts, lists,
True, False, None. Names are those of the flags of `train`, of scores, and `status`; a part's own name is its kind. A
field that a run does not have is None, as one that is not set: it equals None alone, and is neither smaller nor larger
than anything. Numbers and texts are never compared by size. Values are bound, never written into SQL, so that a text is
only ever a text.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from recombine.errors import InvalidValue, listed, reason_of

FIELD = "query"
EXAMPLE = "an expression such as encoding == 'bump' and depth >= 4"
LONGEST, DEEPEST = 10_000, 50
"""Characters of an expression, and levels of it."""
SHORT = {"width": "decoder.width", "depth": "decoder.depth", "samples": "training.samples"}
"""Fields that everybody asks for, by a short name."""
PLACES = ("", "scores.", "spec.", "spec.task.", "spec.recipe.")
"""Where a summary may hold a name."""
SHOWN = 80
_SIZES = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_EQUAL = {ast.Eq: "IS", ast.NotEq: "IS NOT", ast.Is: "IS", ast.IsNot: "IS NOT"}
_ABSENT = object()


class Condition(NamedTuple):
    """An expression as SQL: a condition on columns with the value (`f0`, `f1`, ...) and type (`t0`, ...) of fields."""

    text: str
    values: dict[str, Any]
    """What the text binds, by name (`v0`, ...)."""
    places: list[str]
    """Where a summary holds the fields."""


class Query:
    """A parsed expression.

    Parameters
    ----------
    text
        The expression.
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text.strip():
            raise InvalidValue(FIELD, text, EXAMPLE)
        if len(text) > LONGEST:
            raise InvalidValue(FIELD, text[:SHOWN], f"at most {LONGEST} characters")
        self.text = text.strip()
        try:
            self._tree = ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise InvalidValue(FIELD, self.text, f"{EXAMPLE} ({reason_of(error)})") from None
        self.names = tuple(dict.fromkeys(self._names(self._tree, 0)))
        """Fields that the expression asks for, by their whole names."""

    def sql(self, places: Mapping[str, str]) -> Condition:
        """The expression for SQLite.

        Parameters
        ----------
        places
            Where a summary holds each of `names`, as `spec.task.encoding.kind`.
        """
        writer = _Writer(self.names)
        return Condition(writer.condition(self._tree), writer.values, [places[name] for name in self.names])

    def _names(self, node: ast.expr, depth: int) -> Iterator[str]:
        """The names in a condition; whatever is none is refused."""
        if depth > DEEPEST:
            raise InvalidValue(FIELD, self.text[:SHOWN], f"an expression of at most {DEEPEST} levels")
        match node:
            case ast.BoolOp(values=parts):
                for part in parts:
                    yield from self._names(part, depth + 1)
            case ast.UnaryOp(op=ast.Not(), operand=part):
                yield from self._names(part, depth + 1)
            case ast.Compare(left=left, ops=operators, comparators=others):
                for operator, one, other in zip(operators, [left, *others], others, strict=False):
                    if not _is_comparison(operator, one, other):
                        raise InvalidValue(FIELD, self.text, f"{EXAMPLE}, not {ast.unparse(node)}")
                    yield from (_name(side) for side in (one, other) if _is_name(side))
            case ast.Name() | ast.Attribute() if _is_name(node):
                yield _name(node)
            case _:
                raise InvalidValue(FIELD, self.text, f"{EXAMPLE}, not {ast.unparse(node)}")


def _is_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and _is_name(node.value))


def _name(node: ast.expr) -> str:
    """A name as people write it (`recipe.lr`, `task.size`, `width`) in full."""
    text = ast.unparse(node).removesuffix(".kind")
    for prefix in ("spec.", "task.", "recipe.", "scores."):
        text = text.removeprefix(prefix)
    return SHORT.get(text, text)


def _constant(node: ast.expr) -> Any:
    """A number, text, None, or list of those; `_ABSENT` for anything else."""
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        parts = [_constant(part) for part in node.elts]
        return _ABSENT if any(part is _ABSENT or isinstance(part, list) for part in parts) else parts
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return _ABSENT
    if isinstance(value, float) and not math.isfinite(value):
        return _ABSENT
    if isinstance(value, int) and abs(value) >= 2**63:
        return float(value) if abs(value) < 1e300 else _ABSENT
    return value if value is None or isinstance(value, str | int | float) else _ABSENT


def _is_comparison(operator: ast.cmpop, one: ast.expr, other: ast.expr) -> bool:
    """Whether both sides are names or constants that this operator compares, one of them a name."""
    constants = [_constant(side) for side in (one, other) if not _is_name(side)]
    if len(constants) == 2 or any(constant is _ABSENT for constant in constants):
        return False
    if isinstance(operator, ast.In | ast.NotIn):
        return _is_name(other) or isinstance(_constant(other), list)
    return type(operator) in _EQUAL or all(isinstance(own, str | int | float) for own in constants)


class _Writer:
    """Conditions as SQL, with the values that they bind."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.values: dict[str, Any] = {}

    def condition(self, node: ast.expr) -> str:
        match node:
            case ast.BoolOp(op=operator, values=parts):
                word = " AND " if isinstance(operator, ast.And) else " OR "
                return "(" + word.join(self.condition(part) for part in parts) + ")"
            case ast.UnaryOp(operand=part):
                return f"(NOT {self.condition(part)})"
            case ast.Compare(left=left, ops=operators, comparators=others):
                pairs = zip(operators, [left, *others], others, strict=False)
                return "(" + " AND ".join(self._pair(*pair) for pair in pairs) + ")"
        return f"COALESCE({self._value(node)} NOT IN (0, ''), 0)"

    def _pair(self, operator: ast.cmpop, one: ast.expr, other: ast.expr) -> str:
        kind = type(operator)
        if kind in (ast.In, ast.NotIn):
            return f"({'NOT ' if kind is ast.NotIn else ''}{self._inside(one, other)})"
        own, others = self._value(one), self._value(other)
        if kind in _EQUAL:
            return f"({own} {_EQUAL[kind]} {others})"
        alike = f"(typeof({own}) = 'text') = (typeof({others}) = 'text')"
        return f"COALESCE({own} {_SIZES[kind]} {others} AND {alike}, 0)"

    def _inside(self, one: ast.expr, other: ast.expr) -> str:
        """One of some constants; an element of a list; a part of a text."""
        own = self._value(one)
        if not _is_name(other):
            return f"({' OR '.join(f'{own} IS {self._bound(value)}' for value in _constant(other)) or '0'})"
        number = self._number(other)
        element = f"EXISTS (SELECT 1 FROM json_each(f{number}) WHERE value IS {own})"
        part = f"COALESCE(instr(f{number}, {own}) > 0, 0)"
        return f"CASE t{number} WHEN 'array' THEN {element} WHEN 'text' THEN {part} ELSE 0 END"

    def _value(self, node: ast.expr) -> str:
        if _is_name(node):
            return f"f{self._number(node)}"
        constant = _constant(node)
        return self._bound(_minified(constant) if isinstance(constant, list) else constant)

    def _number(self, node: ast.expr) -> int:
        """Of the columns of a field."""
        return self.names.index(_name(node))

    def _bound(self, value: Any) -> str:
        """The placeholder of a value."""
        name = f"v{len(self.values)}"
        self.values[name] = value
        return f":{name}"


def _minified(values: list[Any]) -> str:
    """A list as SQLite gives back what `json.dumps` wrote."""
    return json.dumps(values, separators=(",", ":"))


def places_of(names: Iterable[str], summaries: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Where summaries hold each name; names that none of them has are left out."""
    wanted, found = set(names), dict[str, str]()
    for summary in summaries:
        for name in wanted - found.keys():
            if place := _place(summary, name):
                found[name] = place
        if len(found) == len(wanted):
            break
    return found


def _place(summary: Mapping[str, Any], name: str) -> str | None:
    for prefix in PLACES:
        value: Any = summary
        for part in f"{prefix}{name}".split("."):
            value = value.get(part, _ABSENT) if isinstance(value, Mapping) else _ABSENT
        if isinstance(value, Mapping):
            if "kind" in value:
                return f"{prefix}{name}.kind"
        elif value is not _ABSENT:
            return f"{prefix}{name}"
    return None


def unknown(query: Query, names: Iterable[str], summaries: Iterable[Mapping[str, Any]]) -> InvalidValue:
    """The error of names that no run has."""
    known: dict[str, None] = {}
    for summary in summaries:
        for prefix in PLACES:
            part: Any = summary
            for step in prefix.split(".")[:-1]:
                part = part.get(step, {})
            for name, value in part.items():
                own = [name] if not isinstance(value, Mapping) or "kind" in value else []
                inner = (
                    [f"{name}.{field}" for field in value if field != "kind"]
                    if own and isinstance(value, Mapping)
                    else []
                )
                known |= dict.fromkeys([*own, *inner])
    missing = listed(sorted(set(names)))
    return InvalidValue(FIELD, query.text, f"fields that runs here have, not {missing}: {listed(known)}")
