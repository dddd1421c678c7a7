"""The table of equations in docs/theory.md: each has a function that cites it, and a test that calls that function."""

import ast
import importlib
import inspect
import re
from functools import reduce
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([\d, –]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", TEXT, re.MULTILINE)
EQUATIONS = 48


def numbers(text):
    """Numbers of equations in a text as `5, 15–17`."""
    parts = [re.split(r"[–-]", part.strip()) for part in text.split(",")]
    return {number for part in parts for number in range(int(part[0]), int(part[-1]) + 1)}


def cited(text):
    """Numbers of equations that a text cites, as `(Eq. 13, 15–17; Fig. 2)`."""
    found = re.findall(r"Eq\.\s*((?:\d+(?:\s*[–-]\s*\d+)?(?:,\s*(?=\d))?)+)", text or "")
    return {number for part in found for number in numbers(part)}


def resolved(path):
    """What a dotted path names, and the module it is defined in."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        return reduce(getattr, parts[length:], module), module
    raise AssertionError(path)


def used(name, functions):
    """Names that a function uses, itself or in the functions of its file that it calls."""
    names, left = set(), [name]
    while left:
        nodes = list(ast.walk(functions[left.pop()]))
        own = {node.id for node in nodes if isinstance(node, ast.Name)}
        own |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        left += [other for other in own - names if other in functions]
        names |= own
    return names


def test_every_equation_is_in_the_table_once():
    listed = [number for row in ROWS for number in sorted(numbers(row[0]))]
    assert sorted(listed) == list(range(1, EQUATIONS + 1))


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_functions_exist_and_cite_their_equations(row):
    paths = re.findall(r"`([\w.]+)`", row[2])
    assert paths
    texts = []
    for path in paths:
        named, module = resolved(path)
        assert callable(named), path
        texts += [inspect.getdoc(named), inspect.getmodule(named).__doc__, module.__doc__]
    assert numbers(row[0]) <= set().union(*map(cited, texts)), texts


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_tests_exist_and_call_the_functions(row):
    names = {path.split(".")[-1] for path in re.findall(r"`([\w.]+)`", row[2])}
    tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row[3])
    assert tests
    for file, name in tests:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name in functions, name
        assert names & used(name, functions), f"{name} calls none of {names}"
        assert any(isinstance(node, ast.Assert) for node in ast.walk(functions[name])), f"{name} asserts nothing"


def test_citations_are_read():
    assert cited("complexity (Eq. 13, 15–17): how") == {13, 15, 16, 17}
    assert cited("Eq. 9; Fig. 3b, 6") == {9}
    assert cited("(Eq. 5, 38)") == {5, 38}
    assert numbers("5, 38–40") == {5, 38, 39, 40}
