"""Runs as a table, and the one expression that selects among them."""

import sys

import pandas
import pytest

import recombine as rc
from recombine.errors import InvalidValue
from recombine.store import Store, flattened
from recombine.store.table import parquet
from tests.command import captured, run
from tests.small import small_spec
from tests.store.saving import saved


@pytest.fixture
def filled(store_path):
    """Six runs that differ in seed and score; the last diverged."""
    store = Store(store_path)
    for seed in range(6):
        saved(store, seed=seed, ood=seed / 5, status="diverged" if seed == 5 else "done")
    return store


def test_a_row_per_run_oldest_first(filled):
    found = filled.table()
    assert list(found.index) == [run.key for run in filled]
    assert found["seed"].tolist() == list(range(6))
    assert set(flattened(next(iter(filled)).spec_fields)) < set(found.columns)
    assert found["finished"].is_monotonic_increasing
    assert Store(filled.path.parent / "empty").table().empty


@pytest.mark.parametrize(
    ("where", "seeds"),
    [
        ("seed > 3", [4, 5]), ("1 < seed < 3", [2]), ("seed in (0, 5)", [0, 5]), ("seed not in [0, 1, 2]", [3, 4, 5]),
        ("not seed < 4 and status == 'done'", [4]), ("seed == 0 or ood_accuracy >= 1", [0, 5]),
        ("encoding == 'bump' and seed < 1", [0]), ("task.encoding.kind != 'bump'", []), ("encoding in ['rate']", []),
        ("depth == 2 and decoder.width == 8 and size == 8 and lr < 1 and samples == 50 and seed == 1", [1]),
        ("mixing == None and seed == 2", [2]), ("holdout is None", []), ("holdout.low is not None and seed < 1", [0]),
        ("isolated and seed >= 0", []), ("seed == -1", []), ("status == \"x'; DROP TABLE runs; --\"", []),
    ],
)  # fmt: skip
def test_expressions(filled, where, seeds):
    assert filled.table(where)["seed"].tolist() == seeds


@pytest.mark.parametrize(
    "where",
    [
        "", "seed >", "seed = 3", "@seed", "@pandas.io", "`seed` > 1", "__import__('os').system('touch x')",
        "seed.max()", "seed.__class__ == 1", "(1).real == 1", "[x for x in (1,)]", "lambda: 1", "seed[0]", "f'{seed}'",
        "seed + 1 > 2", "nothing == 3", "seed > 'a'", "'a'", "seed", "status > 3", "x := 3", "seed == seed == None",
        "(" * 500, "9" * 5000, "seed\x00", "await seed", "*seed,",
    ],
)  # fmt: skip
def test_anything_else_is_one_line_and_runs_nothing(filled, where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValue, match="where") as caught:
        filled.table(where)
    assert len(str(caught.value).splitlines()) == 1
    assert not list(tmp_path.glob("x"))


def test_a_misspelt_name_is_answered_by_one_that_is_there(filled):
    with pytest.raises(InvalidValue, match="no 'sead'; try seed"):
        filled.table("sead > 3")


def test_fields_that_are_lists_are_text_and_missing_ones_are_missing(store_path):
    store = Store(store_path)
    result = dict(saved(store, seed=9).result)
    for number, task in enumerate(({"holdout": "center:2,3:5"}, {"holdout": "center:2:5"}, {"holdout": "none"})):
        spec = small_spec("mlp", seed=number, task=task)
        result["provenance"] = {"finished": float(number)}
        store.save(spec.digest, spec.to_json(), result, {}, {})
    found = store.table("seed < 9")
    assert found["task.holdout.low"].tolist()[:2] == ["[2, 3]", 2]
    assert found["task.holdout.low"].isna().tolist() == [False, False, True]
    assert store.table("holdout.low == 2 and seed < 9")["seed"].tolist() == [1]
    assert store.table("holdout.high >= 5 and seed < 9")["seed"].tolist() == [0, 1]
    pytest.importorskip("pyarrow")
    (store_path / "table.parquet").write_bytes(parquet(found))
    assert pandas.read_parquet(store_path / "table.parquet")["task.holdout.low"].tolist()[:2] == ["[2, 3]", "2"]


def test_without_pyarrow_one_line_says_what_to_install(filled, monkeypatch):
    for name in ("pyarrow", "fastparquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(rc.RecombineError, match="pip install pyarrow"):
        parquet(filled.table())


def test_the_command_lists_and_exports_what_meets(filled, tmp_path, capsys):
    done = captured(["runs", "list", "--where", "seed >= 3 and status == 'done'", "--store", filled.path], capsys)
    assert done.code == 0, done.err
    assert "2 of 6 finished runs" in done.out
    newest = captured(["runs", "list", "--newest", 2, "--store", filled.path], capsys)
    assert "the newest 2 of 6" in newest.out
    wrong = captured(["runs", "list", "--where", "sead >= 3", "--store", filled.path], capsys)
    assert wrong.code == 2
    assert "sead" in wrong.err
    assert run("runs", "export", tmp_path / "some.csv", "--where", "seed >= 3", "--store", filled.path) == 0
    assert len((tmp_path / "some.csv").read_text().splitlines()) == 4
    assert run("runs", "export", tmp_path / "copy", "--where", "seed >= 3", "--store", filled.path) == 0
    assert Store(tmp_path / "copy").table()["seed"].tolist() == [3, 4, 5]
