"""Expressions over runs: what SQLite answers is what Python says of the same fields."""

import ast
import doctest
import sqlite3
import sys

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import recombine as rc
from recombine.errors import InvalidValue
from recombine.store import Store, flattened, loading
from recombine.store.loading import _is_mixed, _texts, parquet
from recombine.store.query import Query, places_of
from recombine.store.rows import keys_in
from tests.command import captured, run
from tests.store.saving import saved

SUMMARY = {
    "status": "done",
    "scores": {"ood_accuracy": 0.5, "id_mse": None},
    "spec": {
        "seed": 3, "decoder": {"kind": "cnn", "depth": 4}, "recipe": {"lr": 0.1, "steps": None},
        "task": {
            "kind": "bumps", "encoding": {"kind": "bump", "variance": 1.0}, "factors": ["x=1", "y=ü"],
            "isolated": False,
            "holdout": {"kind": "center", "low": 6}, "note": "'; DROP TABLE summaries; --",
        },
    },
}  # fmt: skip


def met(text, summary=SUMMARY):
    query = Query(text)
    places = places_of(query.names, [summary])
    assert set(places) == set(query.names)
    return bool(keys_in([("key", summary)], query.sql(places)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("encoding == 'bump' and depth >= 4", True), ("encoding in ['rate', 'bump']", True),
        ("encoding not in ('rate', 'bump')", False), ("'x=1' in factors", True), ("'x=3' in factors", False),
        ("factors == ['x=1', 'y=ü']", True), ("'um' in encoding", True), ("'um' not in encoding", False),
        ("steps == None", True), ("steps is None", True), ("steps != 3", True), ("steps < 5", False),
        ("not steps < 5", True), ("isolated", False), ("not isolated", True), ("isolated == False", True),
        ("0.1 <= lr < 0.2", True), ("lr == 'bump'", False), ("lr < 'z'", False), ("encoding > 1", False),
        ("task == 'bumps' or seed == 9", True), ("recipe.lr > 0 and holdout.low == 6", True), ("-1 < seed", True),
        ("spec.task.encoding.kind == 'bump'", True), ("depth in []", False), ("id_mse in [None]", True),
        ("note == \"'; DROP TABLE summaries; --\"", True), ("seed == depth - 1 if 0 else 0", None),
        ("depth > seed", True), ("steps > seed", False), ("seed == 18446744073709551616", False),
    ],
)  # fmt: skip
def test_known_answers(text, expected):
    if expected is None:
        with pytest.raises(InvalidValue, match="query"):
            Query(text)
    else:
        assert met(text) is expected


@pytest.mark.parametrize(
    "text",
    ["", "   ", 3, None, "depth >", "depth = 4", "__import__('os').system('x')", "f(x)", "depth + 1 > 2", "1 == 1",
     "depth == [[1]]", "depth < None", "depth < [1]", "x in 'abc'", "(" * 300 + "a" + ")" * 300, "lambda: 1",
     "a if b else c", "depth == 1e999", "not " * 200 + "a", "depth; drop", "a[0] == 1", "f'{a}' == 'b'", "a" * 20_000,
     "depth == 1j", "depth == b'x'", "x := 3", "\x00", "depth == ...", "[d for d in depth]", "a.b().c == 1"],
)  # fmt: skip
def test_whatever_is_no_expression_is_one_line(text):
    with pytest.raises(InvalidValue, match="query") as caught:
        Query(text)
    assert len(str(caught.value).splitlines()) == 1


CONSTANTS = st.one_of(st.integers(-5, 9), st.sampled_from(["bump", "cnn", "done", "", "x"]), st.none(), st.booleans())
NAMES = st.sampled_from(["seed", "decoder.depth", "lr", "encoding", "steps", "isolated", "status", "ood_accuracy"])
PAIRS = st.tuples(NAMES, st.sampled_from(["==", "!=", "<", ">=", "in"]), CONSTANTS)
VALUES = {"seed": 3, "decoder.depth": 4, "lr": 0.1, "encoding": "bump", "steps": None, "isolated": False,
          "status": "done", "ood_accuracy": 0.5}  # fmt: skip


def said(name, operator, constant):
    """What Python says, where it compares at all."""
    value = VALUES[name]
    if operator in ("==", "!="):
        return (value == constant) == (operator == "==")
    if operator == "in":
        return any(value == other for other in (constant, 7))
    if value is None or isinstance(value, str) != isinstance(constant, str):
        return False
    return value < constant if operator == "<" else value >= constant


@settings(max_examples=150, deadline=None)
@given(st.lists(PAIRS, min_size=1, max_size=4), st.sampled_from(["and", "or"]), st.booleans())
def test_sqlite_says_what_python_says(pairs, word, negated):
    pairs = [pair for pair in pairs if pair[1] not in ("<", ">=") or pair[2] is not None]
    texts = [f"{n} {o} {[c, 7] if o == 'in' else c!r}" for n, o, c in pairs]
    if not texts:
        return
    whole = f" {word} ".join(texts)
    expected = (all if word == "and" else any)(said(*pair) for pair in pairs)
    assert met(f"not ({whole})" if negated else whole) is (expected != negated)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_an_expression_or_refused(text):
    try:
        query = Query(text)
    except InvalidValue:
        return
    ast.parse(query.text, mode="eval")
    assert query.names


@pytest.fixture
def filled(store_path):
    store = Store(store_path)
    for seed in range(6):
        saved(store, seed=seed, ood=seed / 5, status="diverged" if seed == 5 else "done")
    return store


def test_a_store_lists_what_meets(filled, monkeypatch):
    def seeds(where, **fields):
        return [row.summary["spec"]["seed"] for row in filled.listing(where=where, **fields).rows]

    assert seeds("ood_accuracy >= 0.4 and status == 'done'") == [2, 3, 4]
    assert seeds("seed in [1, 5]") == [1, 5]
    assert seeds("decoder == 'cnn'") == []
    newest = filled.listing(2, "seed < 5")
    assert [row.summary["spec"]["seed"] for row in newest.rows] == [3, 4]
    assert (newest.met, newest.total) == (5, 6)
    with pytest.raises(InvalidValue, match=r"not heat: .*seed"):
        seeds("heat > 3")
    monkeypatch.setattr(type(filled.index), "_used", lambda *_: None)  # as where the index cannot be used
    assert seeds("ood_accuracy >= 0.4 and status == 'done'") == [2, 3, 4]
    with pytest.raises(InvalidValue, match="not heat"):
        seeds("heat > 3")


def test_a_changed_row_hides_no_run(filled):
    filled.listing()
    with sqlite3.connect(filled.path / "index.sqlite") as connection:
        connection.execute("UPDATE runs SET own = replace(own, '\"seed\": 3', '\"seed\": 9')")
    assert [row.summary["spec"]["seed"] for row in filled.listing(where="seed == 3").rows] == [3]


def test_an_index_of_an_earlier_version_is_made_again_in_place(filled):
    expected = filled.listing()
    with sqlite3.connect(filled.path / "index.sqlite") as connection:
        for name in ("runs", "settings"):
            connection.execute(f"DROP TABLE {name}")
        connection.execute(
            "CREATE TABLE heads (key TEXT PRIMARY KEY, finished REAL, stamp TEXT, digest TEXT, seal TEXT)"
        )
        connection.execute("CREATE TABLE summaries (key TEXT PRIMARY KEY, summary TEXT NOT NULL)")
        connection.execute("PRAGMA user_version=4")
    assert Store(filled.path).listing() == expected
    assert filled.index.heads().keys() == set(filled.keys())
    assert not (filled.path / "index.sqlite.damaged").exists()


def test_loaded_as_frame_and_dataset(filled, tmp_path):
    frame = rc.load(filled, "seed >= 4")
    assert frame["seed"].tolist() == [4, 5]
    assert frame["status"].tolist() == ["done", "diverged"]
    assert set(flattened(filled.runs()[0].spec_fields)) < set(frame.columns)
    dataset = rc.load(filled.path, form="dataset", arrays=["error"])
    assert dataset["ood_accuracy"].values.tolist() == [seed / 5 for seed in range(6)]
    assert dataset["error"].shape == (6, 4)
    assert dataset.where(dataset["status"] == "done", drop=True).sizes["run"] == 5
    dataset.to_netcdf(tmp_path / "runs.nc", engine="h5netcdf")
    assert rc.load(filled, "seed > 9").empty
    assert rc.load(filled, "seed > 9", form="dataset").sizes["run"] == 0


def test_a_field_of_several_types_is_text_in_parquet(tmp_path):
    """A hold-out's bounds are a number in one run and a list in another; no column of Parquet is both."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"low": [2, [2, 3], None], "rank": [4, None, 6], "kind": ["a", None, "b"]}, dtype=object)
    mixed = {name: _texts(frame[name]) for name in frame if _is_mixed(frame[name])}
    assert mixed == {"low": ["2", "[2, 3]", None]}
    pytest.importorskip("pyarrow")
    (tmp_path / "table.parquet").write_bytes(parquet(frame))
    again = pandas.read_parquet(tmp_path / "table.parquet")
    assert again["low"].tolist()[:2] == ["2", "[2, 3]"]


def test_loaded_to_parquet_in_one_call(filled, tmp_path):
    pytest.importorskip("pyarrow")
    import pandas

    frame = rc.load(filled.path, "seed >= 4", to=tmp_path / "runs.parquet")
    again = pandas.read_parquet(tmp_path / "runs.parquet")
    assert again.index.tolist() == frame.index.tolist()
    assert again["ood_accuracy"].tolist() == frame["ood_accuracy"].tolist() == [0.8, 1.0]


def test_without_pyarrow_one_line_says_what_to_install(filled, tmp_path, monkeypatch):
    for name in ("pyarrow", "fastparquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(rc.RecombineError, match=r"^to: Parquet needs pyarrow; pip install pyarrow$"):
        rc.load(filled, to=tmp_path / "runs.parquet")
    assert not list(tmp_path.glob("*.parquet"))


def test_examples():
    assert not doctest.testmod(loading).failed


@pytest.mark.parametrize(
    ("given", "what"),
    [({"form": "table"}, "form"), ({"to": "runs.csv"}, "parquet"), ({"to": 3}, "to"),
     ({"to": "runs.parquet", "form": "dataset"}, "frame"),
     ({"arrays": ["error"]}, "arrays"), ({"form": "dataset", "arrays": 3}, "arrays"),
     ({"form": "dataset", "arrays": ["heat"]}, "error"), ({"where": "heat == 1"}, "query"),
     ({"store": "nowhere"}, "store")],
)  # fmt: skip
def test_mistakes_are_one_line(given, what, filled):
    with pytest.raises(rc.RecombineError, match=what) as caught:
        rc.load(**{"store": filled, **given})
    assert len(str(caught.value).splitlines()) == 1


def test_the_command_lists_what_meets(filled, tmp_path, capsys):
    done = captured(["runs", "query", "seed >= 3 and status == 'done'", "--store", filled.path], capsys)
    assert done.code == 0, done.err
    assert "2 of 6 finished runs" in done.out
    wrong = captured(["runs", "query", "sead >= 3", "--store", filled.path], capsys)
    assert wrong.code == 2
    assert "sead" in wrong.err
    assert run("runs", "export", tmp_path / "some.csv", "--query", "seed >= 3", "--store", filled.path) == 0
    assert len((tmp_path / "some.csv").read_text().splitlines()) == 4


@pytest.mark.parametrize("dtype", [object, None], ids=["objects", "as pandas likes"])
def test_a_text_that_is_missing_is_empty(dtype):
    plain = loading._plain(pandas.Series(["done", None, "diverged"], dtype=dtype))
    assert plain.dtype.kind == "U"
    assert plain.tolist() == ["done", "", "diverged"]
    assert loading._plain(pandas.Series([1.5, 2.5])).tolist() == [1.5, 2.5]
