"""Where compiled kernels are kept: the user's alone, made again when damaged, never silently off."""

import hashlib
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recombine import kernels
from recombine.kernels.cpp import build, cache
from tests.kernels.compiled import needs_compiler

SAYS = "from recombine import kernels; print(kernels.available('cpu'), kernels.why_not('cpu'))"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache of its own, and sources that are compiled in no time."""
    small = tmp_path / "small.cpp"
    small.write_text('extern "C" int answer() { return 42; }')
    monkeypatch.setenv("RECOMBINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(build.WARNED, "")
    monkeypatch.setattr(build, "_sources", lambda: [small])
    monkeypatch.setattr(build, "FLAGS", ("-shared", "-fPIC"))
    build.library_or_reason.cache_clear()
    yield tmp_path / "cache"
    monkeypatch.undo()
    build.library_or_reason.cache_clear()


def answer():
    """What the library says in a process of its own, as one that has loaded a file never reads that file again."""
    child = os.fork()
    if not child:
        said = 1
        try:
            build.library_or_reason.cache_clear()
            said = build.library().answer()
        finally:
            os._exit(said)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def why_not():
    build.library_or_reason.cache_clear()
    return kernels.why_not("cpu")


def modes(folder):
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.rglob("*")]}


def planted(path):
    """A library of somebody else's, with the digest that fits it."""
    source = path.parent / "planted.cpp"
    source.write_text('extern "C" int answer() { return 13; }')
    subprocess.run(
        [*build.find_compiler(), "-shared", "-fPIC", str(source), "-o", str(path / build.LIBRARY)], check=True
    )
    source.unlink()
    (path / cache.DIGEST).write_text(hashlib.sha256((path / build.LIBRARY).read_bytes()).hexdigest())


@needs_compiler
@pytest.mark.parametrize("mask", [0, 0o077, 0o777])
def test_what_is_made_is_the_users_alone_under_any_umask(folder, mask):
    before = os.umask(mask)
    try:
        assert answer() == 42
    finally:
        os.umask(before)
    (kept,) = folder.iterdir()
    private = {"cache": 0o700, kept.name: 0o700, build.LIBRARY: 0o700, cache.DIGEST: 0o600}
    assert modes(folder) == private


@needs_compiler
@pytest.mark.parametrize("spoilt", ["", "kernels-*"])
@pytest.mark.parametrize("mode", [0o770, 0o702, 0o1777])
def test_a_folder_that_others_can_write_to_is_not_used(folder, spoilt, mode, capfd):
    assert answer() == 42
    (kept,) = folder.iterdir()
    planted(kept)
    (folder if spoilt == "" else kept).chmod(mode)
    if spoilt:  # nobody else can reach it: made again
        assert answer() == 42
        return
    assert answer() not in (13, 42)
    capfd.readouterr()
    assert "can be written to by others" in why_not()
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert str(folder) in error


@needs_compiler
def test_what_belongs_to_another_user_is_not_used(folder, monkeypatch, capfd):
    assert answer() == 42
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert why_not() == f"{folder} belongs to another user"
    assert capfd.readouterr().err.count("\n") == 1


@needs_compiler
@pytest.mark.parametrize("part", ["build", "library", "digest", "writable library", "writable digest"])
def test_links_and_files_of_others_are_not_loaded(folder, part, tmp_path):
    assert answer() == 42
    (kept,) = folder.iterdir()
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    planted(other)
    if part == "build":
        for path in kept.iterdir():
            path.unlink()
        kept.rmdir()
        kept.symlink_to(other)
    elif part.startswith("writable"):
        planted(kept)
        (kept / (build.LIBRARY if "library" in part else cache.DIGEST)).chmod(0o722)
    else:
        planted(kept)
        name = build.LIBRARY if part == "library" else cache.DIGEST
        (kept / name).unlink()
        (kept / name).symlink_to(other / name)
    assert answer() == 42
    assert sorted(path.name for path in other.iterdir()) == [build.LIBRARY, cache.DIGEST]
    assert not kept.is_symlink()


@needs_compiler
@pytest.mark.parametrize("name", [build.LIBRARY, cache.DIGEST])
@pytest.mark.parametrize("damage", [b"\xff\xfe not UTF-8", None, "folder", "pipe"])
def test_what_is_damaged_is_compiled_again(folder, name, damage, capfd):
    assert answer() == 42
    (kept,) = folder.iterdir()
    (kept / name).unlink()
    if damage == "folder":
        (kept / name / "inside").mkdir(parents=True)
    elif damage == "pipe":
        os.mkfifo(kept / name)
    elif damage is not None:
        (kept / name).write_bytes(damage)
    assert answer() == 42
    assert (kept / name).is_file()
    assert [path.name for path in folder.iterdir()] == [kept.name]
    assert capfd.readouterr().err == ""


@needs_compiler
def test_kernels_are_compiled_once(folder, monkeypatch):
    assert answer() == 42
    monkeypatch.setattr(build, "_compile", lambda *words: pytest.fail("compiled again"))
    assert answer() == 42


@needs_compiler
def test_the_bytes_that_were_checked_are_those_that_are_loaded(folder, monkeypatch):
    """Another file is put in their place between the two."""
    assert answer() == 42
    (kept,) = folder.iterdir()
    original = build.whole_library

    def checked(*words):
        descriptor = original(*words)
        (kept / build.LIBRARY).unlink()
        planted(kept)
        return descriptor

    monkeypatch.setattr(build, "whole_library", checked)
    if not Path("/proc/self/fd").exists():
        pytest.skip("no way to load an open file")
    assert answer() == 42


@needs_compiler
def test_a_cache_that_is_a_file_is_one_line(folder, capfd):
    folder.write_text("")
    assert why_not().startswith("NotADirectoryError")
    assert capfd.readouterr().err.count("\n") == 1


def test_it_is_said_once_in_a_process_and_those_it_starts(tmp_path):
    says = f"import subprocess, sys; {SAYS}; subprocess.run([sys.executable, '-c', {SAYS!r}])"
    environment = {name: value for name, value in os.environ.items() if name != build.WARNED}
    missing = str(tmp_path / "none")
    done = subprocess.run(
        [sys.executable, "-c", says], capture_output=True, text=True, env=environment | {"CXX": missing}
    )
    assert done.returncode == 0
    assert done.stdout.count("False") == 2
    assert done.stderr.count("\n") == done.stderr.count("kernels are off") == 1


def test_nothing_is_said_where_they_are_not_wanted(folder, monkeypatch, capfd):
    monkeypatch.setenv("RECOMBINE_KERNELS", "0")
    assert why_not() == "RECOMBINE_KERNELS says so"
    assert capfd.readouterr().err == ""


def test_it_is_said_to_nobody_when_standard_error_is_closed(tmp_path):
    command = f'exec "{sys.executable}" -c "{SAYS}" 2>&-'
    environment = {**os.environ, "CXX": str(tmp_path / "none")}
    environment.pop(build.WARNED, None)
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=environment)
    assert done.returncode == 0
    assert done.stdout.startswith("False no C++ compiler")
    assert done.stdout.count("\n") == 1


@needs_compiler
@pytest.mark.parametrize("word", ["", " ", " \t "])
def test_a_compiler_that_is_a_blank_is_the_usual_one(folder, word, monkeypatch):
    monkeypatch.setenv("CXX", word)
    assert answer() == 42


@pytest.mark.parametrize("word", ["'", '""', "none-such -O2"])
def test_a_compiler_that_is_no_command_is_one_line(folder, word, monkeypatch, capfd):
    monkeypatch.setenv("CXX", word)
    assert why_not()
    assert capfd.readouterr().err.count("\n") == 1


@needs_compiler
def test_what_killed_compiles_left_is_deleted_by_the_next(folder, tmp_path, monkeypatch):
    """One is killed now; one was killed by an earlier version; and some folders are somebody's own."""
    slow = tmp_path / "slow"
    slow.write_text('#!/bin/sh\n[ "$1" = --version ] || sleep 60\n')
    slow.chmod(0o700)
    child = subprocess.Popen([sys.executable, "-c", SAYS], env={**os.environ, "CXX": str(slow)})
    deadline = time.monotonic() + 60
    while not (folder.exists() and list(folder.glob("compiling-*/kernels-*"))):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    monkeypatch.setattr(build, "LONGEST_SECONDS", 0.2)
    with cache.opened(folder) as descriptor, cache.locked(descriptor, 0) as ours:
        assert not ours, "a compile under way is nobody's to delete"
    child.send_signal(signal.SIGKILL)
    child.wait()
    (earlier := folder / "tmpabc_1234" / "made").mkdir(parents=True)
    os.utime(earlier.parent, (0, 0))
    for name in ("tmpmine_567", "tmpyoung_12", "compiling-notes"):
        (folder / name / ("mine" if "mine" in name else "made")).mkdir(parents=True)
    os.utime(folder / "tmpmine_567", (0, 0))
    monkeypatch.setattr(build, "LONGEST_SECONDS", 300)
    assert answer() == 42
    (kept,) = folder.glob("kernels-*")
    assert {path.name for path in folder.iterdir()} == {kept.name, "tmpmine_567", "tmpyoung_12", "compiling-notes"}
    (folder / f"compiling-{'0' * 16}").mkdir()
    assert answer() == 42  # served, and clean again
    assert not list(folder.glob("compiling-0*"))
