"""Where compiled kernels are kept: the user's alone, made again when damaged, never silently off."""

import os
import stat

import pytest

from recombine import kernels
from recombine.kernels.cpp import build
from tests.kernels.compiled import needs_compiler


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
            said = build.library_or_reason().answer()
        finally:
            os._exit(said)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def why_not():
    build.library_or_reason.cache_clear()
    return kernels.why_not("cpu")


@needs_compiler
def test_kernels_are_compiled_once_for_the_user_alone(folder, monkeypatch):
    before = os.umask(0)
    try:
        assert answer() == 42
    finally:
        os.umask(before)
    (library,) = folder.iterdir()
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder, library)} == {0o700}
    monkeypatch.setattr(build, "_compile", lambda *words: pytest.fail("compiled again"))
    assert answer() == 42


@needs_compiler
@pytest.mark.parametrize("others", ["folder", "library"])
def test_what_others_can_write_to_is_not_loaded(folder, others, capfd):
    assert answer() == 42
    (library,) = folder.iterdir()
    path = folder if others == "folder" else library
    path.chmod(0o770)
    assert answer() != 42
    capfd.readouterr()
    assert "others can write to it" in why_not()
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert str(path) in error


@needs_compiler
def test_what_belongs_to_another_user_is_not_loaded(folder, monkeypatch, capfd):
    assert answer() == 42
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert "belongs to another user" in why_not()
    assert capfd.readouterr().err.count("\n") == 1


@needs_compiler
def test_what_is_damaged_is_compiled_again(folder, capfd):
    assert answer() == 42
    (library,) = folder.iterdir()
    library.write_bytes(b"\xff\xfe not a library")
    assert answer() == 42
    assert list(folder.iterdir()) == [library]
    assert capfd.readouterr().err == ""


@needs_compiler
def test_another_source_or_compiler_is_another_file(folder, tmp_path):
    assert answer() == 42
    (tmp_path / "small.cpp").write_text('extern "C" int answer() { return 43; }')
    assert answer() == 43
    assert len(list(folder.iterdir())) == 2


def test_it_is_said_once_in_a_process_and_those_it_starts(folder, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    assert why_not() == why_not() == f"no C++ compiler ({tmp_path / 'none'})"
    assert capfd.readouterr().err.count("kernels are off") == 1
    assert os.environ[build.WARNED], "which processes that it starts inherit"


def test_a_failing_compiler_is_one_line(folder, tmp_path, monkeypatch):
    fake = tmp_path / "cc"
    fake.write_text("#!/bin/sh\necho 'x.cpp: error: bad' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("CXX", f"{fake} -pthread")
    assert why_not() == "cc failed: x.cpp: error: bad"
    assert not list(folder.iterdir())
