"""The index is a cache: whatever happens to it, a listing says what the folders say, and training goes on."""

import os
import random

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
    expected, content = listed(filled), (filled / "index.tsv").read_bytes()
    chance, repaired = random.Random(0), 0
    used = [k for k in range(len(content)) if content[k]]
    for position in [*range(0, 100, 3), *chance.sample(used, 60)]:
        changed = bytearray(content)
        changed[position] ^= 1 << chance.randrange(8)
        (filled / "index.tsv").write_bytes(changed)
        assert listed(filled) == expected, position
        repaired += (filled / "index.tsv").read_bytes() != changed
    assert repaired > 20


@pytest.mark.parametrize(
    ("old", "new"), [(b"3.125", b"3.126"), (b'"task.size": 8', b'"task.size": 9'), (b"\t", b" "), (b"\n", b"")]
)
def test_an_index_that_was_changed_is_made_again(filled, old, new):
    expected, content = listed(filled), (filled / "index.tsv").read_bytes()
    (filled / "index.tsv").write_bytes(content.replace(old, new) + content[:80])
    assert listed(filled) == expected
    assert len([row for row in index_module._read(filled) if row]) == 6


@pytest.mark.parametrize("content", [None, b"", b"no index at all\n" * 50, b"\0\n" * 500])
def test_a_missing_or_foreign_index_is_made_again(filled, content):
    expected = listed(filled)
    (filled / "index.tsv").unlink()
    if content is not None:
        (filled / "index.tsv").write_bytes(content)
    assert listed(filled) == expected
    assert len(index_module._read(filled)) == 6


def test_nothing_is_read_or_written_through_a_link(filled, tmp_path):
    expected, away = listed(filled), tmp_path / "mine.tsv"
    (filled / "index.tsv").rename(away)
    content = away.read_bytes()
    (filled / "index.tsv").symlink_to(away)
    assert listed(filled) == expected
    assert away.read_bytes() == content
    (filled / "index.tsv").unlink()
    (filled / "index.tsv").mkdir()
    (filled / "index.tsv" / "mine").touch()
    assert listed(filled) == expected
    assert (filled / "index.tsv" / "mine").exists()


def test_a_folder_in_the_place_of_another_is_read_again(filled):
    run_ = next(iter(Store(filled)))
    assert Store(filled).remove(run_.key)
    saved(Store(filled), seed=0, status="diverged")
    assert Store(filled).table("status == 'diverged'").index.tolist() == [run_.key]


def test_a_run_that_cannot_be_listed_is_named(filled, capsys):
    damaged = next(iter(Store(filled)))
    (damaged.path / "result.json").write_text("{")
    (filled / "index.tsv").unlink()
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
    assert {path.name for path in opened} == {"recombine.json", "index.tsv"}
    opened.clear()
    train([small_spec("mlp", seed=30)], filled)
    assert {path.parent.name for path in opened if path.name != "recombine.json"} == {served.key}
    assert len(opened) <= 8


def test_an_index_that_cannot_be_written_stops_nothing(filled):
    (filled / "index.tsv").unlink()
    (filled / "index.tsv").mkdir()
    (served,) = train([small_spec("mlp", seed=20)], filled)
    assert Store(filled).table().index[-1] == served.key
    assert Store(filled).remove(served.key)
    assert not os.path.lexists(served.path)
