"""The index is a cache: whatever happens to it, a listing says what the folders say, and training goes on."""

import os
import random
import sqlite3
import time

import pytest

from recombine.store import Store
from recombine.store import index as index_module
from recombine.sweep import train
from tests.command import run
from tests.small import small_spec
from tests.store.saving import saved


@pytest.fixture
def filled(store_path):
    for seed in range(6):
        saved(Store(store_path), seed=seed, ood=seed + 0.125)
    return store_path


def listed(path):
    """A listing as plain data."""
    return Store(path).table().astype(str).to_dict()


def test_a_flipped_bit_never_changes_a_listing(filled):
    expected, content = listed(filled), (filled / "index.sqlite").read_bytes()
    chance, repaired = random.Random(0), 0
    used = [k for k in range(len(content)) if content[k]]
    for position in [*range(0, 100, 3), *chance.sample(used, 60)]:
        changed = bytearray(content)
        changed[position] ^= 1 << chance.randrange(8)
        (filled / "index.sqlite").write_bytes(changed)
        assert listed(filled) == expected, position
        repaired += (filled / "index.sqlite").read_bytes() != changed
    assert repaired > 20


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE runs SET own = replace(own, '3.125', '3.126')", "UPDATE runs SET own = NULL",
        "UPDATE runs SET settings = replace(settings, '\"task.size\": 8', '\"task.size\": 9')",
        "UPDATE runs SET stamp = '' WHERE key = (SELECT MIN(key) FROM runs)", "DELETE FROM runs",
        "INSERT INTO runs VALUES ('ghost', '', '[]', '{}', 0)", "DROP TABLE runs", "CREATE TABLE more (text TEXT)",
        "CREATE TRIGGER harm AFTER INSERT ON runs BEGIN DELETE FROM runs; END",
    ],
)  # fmt: skip
def test_an_index_that_was_changed_is_made_again(filled, change):
    expected = listed(filled)
    with sqlite3.connect(filled / "index.sqlite") as connection:
        connection.execute(change)
    assert listed(filled) == expected
    assert len(index_module._read(filled)) == 6


@pytest.mark.parametrize("content", [None, b"", b"not a database at all" * 50, b"SQLite format 3\0" + bytes(500)])
def test_a_missing_or_foreign_index_is_made_again(filled, content):
    expected = listed(filled)
    (filled / "index.sqlite").unlink()
    if content is not None:
        (filled / "index.sqlite").write_bytes(content)
    assert listed(filled) == expected
    assert len(index_module._read(filled)) == 6


def test_the_index_of_an_earlier_version_is_replaced(filled):
    expected = listed(filled)
    (filled / "index.sqlite").unlink()
    with sqlite3.connect(filled / "index.sqlite") as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE settings (id INTEGER PRIMARY KEY, text TEXT)")
        connection.execute("PRAGMA user_version=5")
    (filled / "index.sqlite-wal").write_bytes(b"old")
    assert listed(filled) == expected
    assert sorted(path.name for path in filled.glob("index.sqlite*")) == ["index.sqlite"]


def test_nothing_is_read_or_written_through_a_link(filled, tmp_path):
    expected, away = listed(filled), tmp_path / "mine.sqlite"
    (filled / "index.sqlite").rename(away)
    for name in ("index.sqlite", "index.sqlite-journal"):
        content = away.read_bytes()
        (filled / "index.sqlite").unlink(missing_ok=True)
        (filled / name).symlink_to(away)
        assert listed(filled) == expected
        assert away.read_bytes() == content
    (filled / "index.sqlite").unlink()
    (filled / "index.sqlite").mkdir()
    (filled / "index.sqlite" / "mine").touch()
    assert listed(filled) == expected
    assert (filled / "index.sqlite" / "mine").exists()


def test_a_locked_index_stops_neither_training_nor_listing(filled, monkeypatch):
    monkeypatch.setattr(index_module, "BUSY_SECONDS", 0.1)
    expected = listed(filled)
    holder = sqlite3.connect(filled / "index.sqlite", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    began = time.perf_counter()
    runs = train([small_spec("mlp", seed=seed) for seed in range(10, 14)], filled)
    assert time.perf_counter() - began < 30
    assert len(Store(filled).table()) == 10
    holder.close()
    assert [*Store(filled).table().index][6:] == [run.key for run in runs]
    assert {name: len(column) for name, column in expected.items()}["seed"] == 6


def test_a_folder_in_the_place_of_another_is_read_again(filled):
    run_ = Store(filled).runs()[0]
    assert Store(filled).remove(run_.key)
    saved(Store(filled), seed=0, status="diverged")
    assert Store(filled).table("status == 'diverged'").index.tolist() == [run_.key]


def test_a_run_that_cannot_be_listed_is_named(filled, capsys):
    damaged = next(iter(Store(filled)))
    (damaged.path / "result.json").write_text("{")
    (filled / "index.sqlite").unlink()
    table = Store(filled).table()
    assert (len(table), table.attrs["unreadable"]) == (5, [damaged.key])
    assert run("runs", "list") == 1
    text = capsys.readouterr().out
    assert "5 finished runs" in text
    assert f"cannot be listed: {damaged.key[:10]}" in text
    assert run("runs", "export", str(filled.parent / "all.csv")) == 2
    assert damaged.key in capsys.readouterr().err


def test_listing_reads_no_runs_and_serving_one_reads_only_that(filled, monkeypatch):
    import recombine.files

    (served,) = train([small_spec("mlp", seed=30)], filled)
    opened, open_regular = [], recombine.files.open_regular
    monkeypatch.setattr(
        recombine.files, "open_regular", lambda path, **how: opened.append(path) or open_regular(path, **how)
    )
    assert len(Store(filled).table()) == 7
    assert {path.name for path in opened} == {"recombine.json"}
    opened.clear()
    train([small_spec("mlp", seed=30)], filled)
    assert {path.parent.name for path in opened if path.name != "recombine.json"} == {served.key}
    assert len(opened) <= 8


def test_an_index_that_cannot_be_written_stops_nothing(filled, monkeypatch):
    def refuse(*_, **__):
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(sqlite3, "connect", refuse)
    (served,) = train([small_spec("mlp", seed=20)], filled)
    assert Store(filled).table().index[-1] == served.key
    assert Store(filled).remove(served.key)
    assert not os.path.lexists(served.path)
