"""The index is a cache: whatever happens to it, a listing says what the folders say, and training goes on."""

import os
import random
import shutil
import sqlite3
import sys
import time

import pytest

from recombine.store import Store
from recombine.store import index as index_module
from recombine.store.rows import row_seal
from recombine.sweep import train
from tests.command import run
from tests.small import small_spec
from tests.store.saving import saved

FILES = ("index.sqlite", "index.sqlite-wal", "index.sqlite-shm")


@pytest.fixture
def filled(store_path):
    """A store with a few runs, all of its index in one file."""
    for seed in range(6):
        saved(Store(store_path), seed=seed, ood=seed + 0.125)
    connection = sqlite3.connect(store_path / "index.sqlite")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return store_path


def replaced(path, content):
    """Put other bytes in the place of the index."""
    for name in FILES:
        (path / name).unlink(missing_ok=True)
    (path / "index.sqlite").write_bytes(content)


def test_a_flipped_bit_never_changes_a_listing(filled):
    """E: one number of a row's checksum is enough to have the whole index made again."""
    expected, content = Store(filled).listing(), (filled / "index.sqlite").read_bytes()
    chance, repaired = random.Random(0), 0
    used = [k for k in range(len(content)) if content[k]]
    for position in [*range(100), *chance.sample(used, 150)]:
        changed = bytearray(content)
        changed[position] ^= 1 << chance.randrange(8)
        replaced(filled, changed)
        assert Store(filled).listing() == expected, position
        repaired += (filled / "index.sqlite.damaged").exists()
        (filled / "index.sqlite.damaged").unlink(missing_ok=True)
    assert repaired > 50


def test_a_digit_changed_by_hand_is_found(filled):
    expected = Store(filled).listing()
    with sqlite3.connect(filled / "index.sqlite") as connection:
        connection.execute("UPDATE runs SET own = replace(own, '3.125', '3.126')")
    assert Store(filled).listing() == expected
    with sqlite3.connect(filled / "index.sqlite") as connection:
        connection.execute("UPDATE runs SET finished = finished + 1000 WHERE key = (SELECT MIN(key) FROM runs)")
    assert Store(filled).listing() == expected
    with sqlite3.connect(filled / "index.sqlite") as connection:
        connection.execute("UPDATE settings SET text = replace(text, '\"size\": 8', '\"size\": 9')")
        assert connection.execute("SELECT changes()").fetchone() == (1,)
    assert Store(filled).listing() == expected
    with sqlite3.connect(filled / "index.sqlite") as connection:
        connection.execute("DELETE FROM settings")
    assert Store(filled).listing() == expected
    assert Store(filled).index.heads().keys() == set(Store(filled).keys())  # and the new one is sound


@pytest.mark.parametrize("moment", ["heads", "summaries"])
def test_an_index_damaged_while_it_is_read_hides_no_run(filled, monkeypatch, moment):
    """E: the listing is made whole again after the repair, not before."""
    expected = Store(filled).listing()
    read = getattr(index_module.Index, moment)

    def damaged_now(self, *arguments):
        monkeypatch.undo()
        replaced(filled, b"not a database at all" * 50)
        return read(self, *arguments)

    monkeypatch.setattr(index_module.Index, moment, damaged_now)
    assert Store(filled).listing() == expected
    assert Store(filled).listing() == expected


def test_other_schemas_and_bad_json_are_put_aside_and_made_again(filled):
    """14: as for a damaged file."""
    expected = Store(filled).listing()
    replaced(filled, b"")
    with sqlite3.connect(filled / "index.sqlite") as connection:  # the first format of all
        connection.execute("CREATE TABLE runs (key TEXT PRIMARY KEY, finished REAL NOT NULL, summary TEXT NOT NULL)")
        connection.execute("INSERT INTO runs VALUES ('ghost', 1.0, '{')")
    assert Store(filled).listing() == expected
    assert (filled / "index.sqlite.damaged").exists()
    deep = "[" * 100_000
    with sqlite3.connect(filled / "index.sqlite") as connection:
        ((key, *head),) = connection.execute("SELECT key, finished, stamp, settings FROM runs LIMIT 1")
        values = (deep, row_seal(key, *head, deep), key)
        connection.execute("UPDATE runs SET own = ?, seal = ? WHERE key = ?", values)
    assert Store(filled).listing() == expected
    (filled / "index.sqlite").unlink()
    (filled / "index.sqlite").mkdir()
    assert Store(filled).listing() == expected
    shutil.rmtree(filled / "index.sqlite.damaged")


def test_a_locked_index_stops_neither_training_nor_listing(filled, monkeypatch):
    monkeypatch.setattr(index_module, "BUSY_SECONDS", 0.1)
    expected = Store(filled).listing()
    holder = sqlite3.connect(filled / "index.sqlite", isolation_level=None)
    holder.execute("PRAGMA locking_mode=EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    assert Store(filled).listing() == expected
    specs = [small_spec("mlp", seed=seed) for seed in range(10, 14)]
    began = time.perf_counter()
    runs = train(specs, filled)
    assert time.perf_counter() - began < 30
    assert len(Store(filled).listing().rows) == 10
    holder.close()
    assert [row.key for row in Store(filled).listing().rows][6:] == [run.key for run in runs]


def test_an_index_that_cannot_be_written_stops_nothing(filled, monkeypatch):
    def refuse(self, mode):
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(index_module.Index, "_connected", refuse)
    (run,) = train([small_spec("mlp", seed=20)], filled)
    assert Store(filled).listing().rows[-1].key == run.key
    assert Store(filled).remove(run.key)


def test_a_run_that_cannot_be_listed_is_named(filled, capsys):
    """E: a listing that leaves a run out says so."""
    damaged = next(iter(Store(filled)))
    (damaged.path / "result.json").write_text("{")
    for name in FILES:
        (filled / name).unlink(missing_ok=True)
    listing = Store(filled).listing()
    assert (len(listing.rows), listing.total, listing.unreadable) == (5, 5, [damaged.key])
    assert run("runs", "list") == 1
    text = capsys.readouterr().out
    assert "5 finished runs" in text
    assert f"cannot be listed: {damaged.key[:10]}" in text
    assert run("runs", "export", str(filled.parent / "all.json")) == 2
    assert damaged.key in capsys.readouterr().err


def reads(monkeypatch):
    """Paths of all files that are read from now on."""
    import recombine.files

    opened, open_regular = [], recombine.files.open_regular
    monkeypatch.setattr(
        recombine.files, "open_regular", lambda path, **how: opened.append(path) or open_regular(path, **how)
    )
    return opened


def test_listing_reads_no_runs_and_serving_one_reads_only_that(filled, monkeypatch):
    """H: what `list` and a served `train` read does not grow with the number of runs."""
    (run,) = train([small_spec("mlp", seed=30)], filled)
    opened = reads(monkeypatch)
    assert [row.key for row in Store(filled).listing(newest=2).rows] == [
        row.key for row in Store(filled).listing().rows
    ][-2:]
    assert {path.name for path in opened} == {"recombine.json"}
    opened.clear()
    train([small_spec("mlp", seed=30)], filled)
    assert {path.parent.name for path in opened if path.name != "recombine.json"} == {run.key}
    assert len(opened) <= 8


LISTENERS = []
"""Told of every file that Python opens; a hook cannot be taken away again."""


def work_of(words, folder):
    """Files below a folder that a command opens, and calls of functions that it makes."""
    if not LISTENERS:
        sys.addaudithook(lambda event, details: LISTENERS[-1](details[0]) if event == "open" else None)
        LISTENERS.append(lambda path: None)
    opened, calls = [], 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call"

    LISTENERS.append(lambda path: opened.append(path) if str(path).startswith(str(folder)) else None)
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        assert run(*words) == 0
    finally:
        sys.setprofile(before)
        LISTENERS.pop()
    return len(opened), calls


TRAIN = ("train", "--size", 8, "--decoder", "mlp:width=4:depth=1", "--steps", 2, "--samples", 20, "--device", "cpu")


@pytest.mark.parametrize("words", [("runs", "list"), TRAIN], ids=["list", "train"])
def test_the_work_of_a_command_does_not_grow_with_the_number_of_runs(store_path, words, monkeypatch, capsys):
    """H: that of a listing, and of a `train` whose one run is served."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    assert run(*TRAIN) == 0
    files, calls, seeds = {}, {}, iter(range(1000))
    for number in (110, 220):  # more than a listing shows
        while len(os.listdir(store_path / "runs")) < number:
            saved(Store(store_path), seed=next(seeds))
        assert run(*words) == 0  # which brings the index up to date, and imports what it needs
        files[number], calls[number] = work_of(words, store_path)
    assert 0 < files[110] == files[220] < 20
    assert calls[220] - calls[110] < 10 * 110


def test_a_run_from_elsewhere_in_a_known_place_is_read(filled, tmp_path, capsys):
    """A listing follows the folders, also where a key is known; and nothing healthy is taken for diverged."""
    other = tmp_path / "other"
    for seed in range(6):
        saved(Store(other), seed=seed, ood=9.5, status="diverged")
    shutil.rmtree(filled / "runs")
    shutil.copytree(other / "runs", filled / "runs")
    assert {row.summary["status"] for row in Store(filled).listing().rows} == {"diverged"}
    for seed in range(6):
        saved(Store(tmp_path / "healthy"), seed=seed)
    shutil.rmtree(filled / "runs")
    shutil.copytree(tmp_path / "healthy" / "runs", filled / "runs")
    run("runs", "prune", "--diverged")
    assert "0 runs" in capsys.readouterr().out
    assert len(Store(filled)) == 6


def test_a_damaged_index_waits_for_nobody(filled):
    """Another process that is stopped while it holds the store's lock keeps nobody from listing or training."""
    expected = Store(filled).listing()
    replaced(filled, b"not a database at all" * 50)
    with Store(filled).lock("store"):
        assert Store(filled).listing() == expected
        train([small_spec("mlp", seed=40)], filled)


def test_a_journal_that_a_kill_left_belongs_to_the_index(tmp_path):
    """Written before the index is one with a write-ahead log."""
    train([small_spec("mlp")], tmp_path / "store", device="cpu")
    (tmp_path / "store" / "index.sqlite-journal").write_bytes(b"")
    assert all(not problems for _, problems in Store(tmp_path / "store").verify())
    assert len(Store(tmp_path / "store").listing().rows) == 1
