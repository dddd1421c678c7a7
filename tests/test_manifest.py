"""Files of a results folder: none is read that is not as it was written, whatever happened to it."""

import errno
import os
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import xarray

import recombine.files
import recombine.manifest
from recombine.errors import InvalidValue, StoreError
from recombine.manifest import LIST, Differs, Manifest, list_text, remove_temporaries, write_into
from recombine.papers.forced_rendering import PAPER as DEFAULT
from recombine.reproduction.paper import Findings
from recombine.reproduction.reporting import write_report
from recombine.reproduction.results import Results
from recombine.store import Store
from tests.command import run
from tests.golden import RESULTS


@pytest.fixture
def folder(tmp_path):
    """A small folder with a file of every kind."""
    results = Results(tmp_path / "out")
    results.save("encoder", xarray.Dataset({"score": ("seed", [1.0, 2.0])}), "digest")
    results.note(wall_seconds=1.0)
    results.digests.replace({"runs.json": b'{\n"a": 1.5\n}\n'})
    write_into(results.path, {"claims.json": b"[]", "index.html": b"<p>"})
    write_into(results.path / "figures", {"fig1.png": b"PNG", "fig1.svg": b"<svg/>"})
    return results.path


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def problems(folder):
    digests = Manifest(folder)
    return {name: problem for name in digests.names() if (problem := digests.problem(name))}


def readings(folder):
    """All that figures, verdicts and the report read."""
    results = Results(folder)
    return results.dataset("encoder").to_dict(), results.noted, results.provenance


def flips(folder, count):
    """A bit of every byte of every file, or of some of them."""
    chance = random.Random(0)
    places = [(name, at) for name, content in files_of(folder).items() for at in range(len(content))]
    chosen = places if count is None else chance.sample(places, count)
    return [(name, at, 1 << chance.randrange(8)) for name, at in chosen]


@pytest.mark.parametrize("count", [80, pytest.param(None, marks=pytest.mark.slow)])
def test_no_flipped_bit_is_read(folder, count):
    assert not problems(folder)
    before = readings(folder)
    for name, at, bit in flips(folder, count):
        path = folder / name
        content = path.read_bytes()
        flipped = bytearray(content)
        flipped[at] ^= bit
        path.write_bytes(flipped)
        assert name in problems(folder), (name, at, bit)
        if name in (LIST, "data/encoder.nc", "provenance.json", "runs.json"):
            with pytest.raises(InvalidValue) as caught:
                readings(folder)
            assert "\n" not in str(caught.value)
        else:
            assert readings(folder) == before
        path.write_bytes(content)
    assert not problems(folder)


COMMANDS = {"figure": ("figure", "10", "--from"), "claims": ("claims", "--from"), "report": ("report",)}
DAMAGE = ("flipped", "truncated", "empty", "pipe", "folder", "missing")


@pytest.mark.parametrize(
    ("command", "name", "damage"),
    [
        *(("claims", "data/depth.nc", damage) for damage in DAMAGE),
        ("figure", LIST, "flipped"),
        ("report", LIST, "pipe"),
    ],
)
def test_commands_refuse_what_is_damaged_in_one_line(tmp_path, command, name, damage, capsys):
    folder = tmp_path / "results"
    shutil.copytree(RESULTS, folder)
    path = folder / name
    content = bytearray(path.read_bytes())
    path.unlink()
    if damage == "pipe":
        os.mkfifo(path)
    elif damage == "folder":
        path.mkdir()
    elif damage != "missing":
        content[len(content) // 2] ^= 1
        path.write_bytes({"flipped": content, "truncated": content[:999], "empty": b""}[damage])
    assert run(*COMMANDS[command], folder) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert run("verify", folder) == 1
    assert f"{name}: " in capsys.readouterr().out


def killed_at(number, work):
    """Whether a process that does the work was killed at its so manieth call that changes the disk."""
    child = os.fork()
    if not child:
        calls = 0

        def counted(original):
            def call(*words, **options):
                nonlocal calls
                calls += 1
                if calls == number:
                    os._exit(9)
                return original(*words, **options)

            return call

        for name in ("open", "fsync", "replace", "unlink", "mkdir"):
            setattr(os, name, counted(getattr(os, name)))
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@pytest.mark.parametrize("kind", ["replace", "create", "delete", "several"])
def test_a_call_that_is_killed_leaves_every_file_whole(folder, kind):
    new = {"replace": {"data/encoder.nc": b"new"}, "create": {"data/depth.nc": b"new"},
           "delete": {"data/encoder.nc": None},
           "several": {"figures/fig1.png": b"new", "figures/fig2.png": b"new", "claims.json": None}}[kind]  # fmt: skip
    before, number = files_of(folder), 1
    while killed_at(number, lambda: Manifest(folder).replace(new)):
        assert not problems(folder), number
        after = files_of(folder)
        for name, content in new.items():
            assert after.get(name) in (before.get(name), content)
        shutil.rmtree(folder)
        for name, content in before.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        number += 1
    assert number > 10
    assert {name: files_of(folder).get(name) for name in new} == new
    assert not problems(folder)


def test_every_file_and_its_folder_are_flushed_around_the_rename(folder, monkeypatch):
    """A power cut leaves the old file or all of the new one, and the list before the file that it lists."""
    calls, fsync, rename = [], os.fsync, os.replace

    def identity(found):
        return found.st_dev, found.st_ino

    def flushed(descriptor):
        fsync(descriptor)
        calls.append(("flush", identity(os.fstat(descriptor))))

    def renamed(before, after):
        rename(before, after)
        calls.append((str(Path(after).relative_to(folder)), identity(os.stat(after))))

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", renamed)
    Results(folder).save("encoder", xarray.Dataset({"score": ("seed", [3.0])}), "other digest")
    Results(folder).note(wall_seconds=2.0)
    write_into(folder / "figures", {"fig1.svg": b"<svg></svg>"})
    renames = [number for number, (name, _) in enumerate(calls) if name != "flush"]
    names = [calls[number][0] for number in renames]
    for name in ("data/encoder.nc", "provenance.json", "figures/fig1.svg"):
        at = names.index(name)
        assert names[at - 1 : at + 2] == [LIST, name, LIST]
    for number in renames:
        name, file = calls[number]
        assert calls[number - 1] == ("flush", file)
        assert calls[number + 1] == ("flush", identity((folder / name).parent.stat()))


def test_files_of_calls_at_the_same_time_are_all_listed(folder):
    def draw(number):
        write_into(folder / "figures", {f"fig{number}.png": bytes([number]) * 9})
        return Results(folder).dataset("encoder").attrs

    with ThreadPoolExecutor(1) as other:
        reading = other.submit(lambda: [readings(folder) for _ in range(20)])
        children = []
        for number in range(2, 8):
            child = os.fork()
            if not child:
                draw(number)
                os._exit(0)
            children.append(child)
        assert all(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 for child in children)
        reading.result()
    assert {f"figures/fig{number}.png" for number in range(2, 8)} <= set(Manifest(folder).listed())
    assert not problems(folder)


def test_a_file_that_is_being_replaced_is_not_taken_for_damaged(folder, monkeypatch):
    """The list was read before, the file after."""
    digests, original, calls = Manifest(folder), Manifest.listed, []

    def listed(self):
        found = original(self)
        calls.append(1)
        if len(calls) == 1:
            Manifest(folder).replace({"claims.json": b"[1]"})
        return found

    monkeypatch.setattr(Manifest, "listed", listed)
    assert digests.read("claims.json") == b"[1]"


def test_a_file_that_is_not_listed_is_not_read(folder):
    shutil.copy(folder / "data" / "encoder.nc", folder / "data" / "depth.nc")
    with pytest.raises(InvalidValue, match="not listed"):
        Results(folder).dataset("depth")
    assert problems(folder) == {"data/depth.nc": "not listed in digests.json"}


def test_a_list_that_names_other_peoples_files_is_refused(folder):
    (folder.parent / "secret").write_text("x")
    (folder / LIST).write_text(list_text({"../secret": ("0" * 64,)}))
    with pytest.raises(Differs):
        Manifest(folder).listed()


def test_verify_goes_on_after_each_problem(folder, capsys):
    assert run("verify", folder) == 0
    assert "7 checked, 0 damaged" in capsys.readouterr().out
    (folder / "claims.json").write_text("{}")
    (folder / "data" / "encoder.nc").unlink()
    os.mkfifo(folder / "data" / "encoder.nc")
    (folder / "figures" / "fig1.png").unlink()
    (folder / "figures" / "fig1.png").mkdir()
    for name in (".DS_Store", "notes.txt", "data/[red].nc", "figures/mine.pdf"):
        (folder / name).write_text("x")
    (folder / "index.html").unlink()  # may be deleted
    assert run("verify", folder) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(";")[0] for line in lines] == [
        "claims.json: content changed", "data/encoder.nc: not a regular file",
        "figures/fig1.png: not a regular file", "7 checked, 3 damaged",
    ]  # fmt: skip


def test_what_cannot_be_read_is_not_called_damaged(folder, capsys, monkeypatch):
    original = os.open

    def refuse(path, *words, **options):
        if str(path).endswith("runs.json"):
            raise PermissionError(13, "Permission denied", str(path))
        return original(path, *words, **options)

    monkeypatch.setattr(os, "open", refuse)
    assert run("verify", folder) == 2
    assert "runs.json: cannot be read" in capsys.readouterr().out


def test_verify_takes_a_store_too_and_nothing_else(tmp_path, capsys):
    Store(tmp_path / "store")
    assert run("verify", tmp_path / "store") == 0
    assert "0 checked" in capsys.readouterr().out
    for other in (tmp_path, tmp_path / "nowhere"):
        assert run("verify", other) == 2
        assert "folder" in capsys.readouterr().err


@pytest.mark.parametrize("by", ["reproduce", "report"])
def test_what_killed_calls_were_writing_is_deleted_by_the_next(folder, by):
    ours = [".digests.json.999999", ".provenance.json.999999", "data/.depth.nc.999999", "figures/.fig1.svg.999999"]
    others = [".notes.999999", "data/.mine.txt.999999", ".provenance.json.backup"]
    for name in ours + others:
        (folder / name).write_text("x")
    if by == "report":
        write_report(Findings(replace(DEFAULT, figures={}, studies={}), Results(folder)))
    else:
        remove_temporaries(folder)
    assert not [name for name in ours if (folder / name).exists()]
    assert all((folder / name).exists() for name in others)


def test_what_was_not_listed_is_never_listed_as_it_is(tmp_path, monkeypatch):
    """A damaged file without a list stays unlisted when its replacement fails."""
    folder = tmp_path / "results"
    shutil.copytree(RESULTS, folder)
    (folder / LIST).unlink()
    (folder / "data/depth.nc").write_bytes(b"bad!")

    def full(path, content, field="store", write=recombine.manifest.write):
        if path.suffix == ".nc":
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, content, field)

    monkeypatch.setattr(recombine.manifest, "write", full)
    with pytest.raises(StoreError):
        Manifest(folder).replace({"data/depth.nc": b"new"})
    with pytest.raises(Differs):
        Manifest(folder).read("data/depth.nc")


def test_only_studies_can_be_removed(tmp_path):
    folder = tmp_path / "deep" / "results"
    shutil.copytree(RESULTS, folder)
    (tmp_path / "mine.nc").write_text("precious")
    with pytest.raises(InvalidValue):
        Results(folder).remove(["../../mine"])
    with pytest.raises(InvalidValue):
        Manifest(folder).replace({"../../mine.nc": None})
    assert (tmp_path / "mine.nc").exists()


def test_nothing_is_written_or_deleted_through_a_link(tmp_path):
    folder, elsewhere = tmp_path / "results", tmp_path / "elsewhere"
    shutil.copytree(RESULTS, folder)
    shutil.move(folder / "data", elsewhere)
    (folder / "data").symlink_to(elsewhere)
    (elsewhere / ".depth.nc.77").write_bytes(b"")
    before = sorted(os.listdir(elsewhere))
    for call in (lambda: remove_temporaries(folder), lambda: Results(folder).remove(["depth"])):
        with pytest.raises(InvalidValue, match="not a link"):
            call()
    assert sorted(os.listdir(elsewhere)) == before


def test_notes_of_two_at_once_are_all_kept(tmp_path):
    with ThreadPoolExecutor(2) as pool:
        for number in range(20):
            for name in ("one", "two"):
                pool.submit(Results(tmp_path).note, **{f"{name}_{number}": number})
    assert len(Results(tmp_path).noted) == 40


def test_a_temporary_that_is_being_written_is_not_taken_for_abandoned(tmp_path):
    """One that a killed process left is removed; the removal and a writer that begins just then do not collide."""
    (tmp_path / ".provenance.json.12").write_bytes(b"")
    failures = []

    def write_often():
        for number in range(100):
            try:
                recombine.files.write(tmp_path / "provenance.json", str(number).encode())
            except StoreError as error:
                failures.append(error)

    with ThreadPoolExecutor(2) as pool:
        writing = pool.submit(write_often)
        while not writing.done():
            recombine.files.remove_abandoned(tmp_path, lambda name: name == "provenance.json")
    assert failures == []
    assert os.listdir(tmp_path) == ["provenance.json"]
