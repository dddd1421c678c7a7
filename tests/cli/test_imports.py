"""`--import`: parts of one's own at the command line."""

import subprocess
import sys

import pytest

from recombine.encodings import ENCODINGS
from recombine.store import Store
from tests.command import run

PARTS = '''
from typing import Literal
import torch
from recombine.encodings import ENCODINGS, Encoding

@ENCODINGS.register
class Ring(Encoding):
    """A point on a circle."""
    kind: Literal["ring"] = "ring"
    turns: float = 0.5
    """How often the circle is gone round."""
    def size(self, factor):
        return 2
    def code(self, values, factor):
        angle = 2 * torch.pi * self.turns * factor.position(values) / factor.count
        return torch.stack([angle.cos(), angle.sin()], dim=-1)
'''
SMALL = "--size 8 --decoder mlp --width 4 --depth 1 --steps 2 --samples 20 --device cpu"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a module of a user's, in which commands are given."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "my_parts.py").write_text(PARTS)
    (tmp_path / "sub" / "ring.py").write_text(PARTS)
    (tmp_path / "sub" / "same_parts.py").write_text("from my_parts import Ring\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RECOMBINE_STORE", raising=False)
    return tmp_path


def shell(line):
    done = subprocess.run(
        [sys.executable, "-m", "recombine", *line.split()], capture_output=True, text=True, timeout=200
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_a_part_of_ones_own_trains_in_several_processes_and_is_diagnosed(folder):
    code, out, errors = shell(f"train {SMALL} --encoding ring:turns=0.25 --seeds 2 --processes 2 --import sub/ring.py")
    assert code == 0, errors
    assert "2 runs" in out
    stored = Store("runs").table("encoding.turns == 0.25")
    code, listed, _ = shell("runs list --where encoding=='ring'")  # a stored spec can be listed without it
    assert code == 0
    assert "2 finished runs" in listed
    code, _, errors = shell(f"diagnose run:{stored.index[0]}")
    assert code == 2
    assert "--import" in errors
    code, out, errors = shell(f"diagnose run:{stored.index[0]} --import ./my_parts.py")
    assert code == 0, errors
    assert "stages.layer1" in out


def test_its_kinds_are_in_the_help_and_a_module_may_lie_anywhere(folder):
    code, text, errors = shell("train --help-all --import my_parts --import=sub/same_parts.py")
    assert code == 0, errors
    assert "mixed, ring" in " ".join(text.split())
    assert "--encoding.turns" in text


def test_every_command_says_so(folder, capsys):
    for command in ("", "runs", "runs list", "claims"):
        run(*command.split(), "--help")
        assert "--import MODULE" in capsys.readouterr().out
    assert "ring" not in ENCODINGS


def test_a_file_with_the_name_of_another_module_is_refused(folder, capsys, monkeypatch):
    """`json` was shadowed, and `signal`, which is loaded already, silently not imported."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (folder / "json.py").write_text("")
    (folder / "sub" / "signal.py").write_text("raise RuntimeError\n")
    (folder / "sub" / "test_imports_twice.py").write_text("")
    (folder / "test_imports_twice.py").write_text("")
    for words in (
        "./json.py",
        "sub/signal.py",
        "test_imports_twice.py,sub/test_imports_twice.py",
    ):
        flags = [word for name in words.split(",") for word in ("--import", name)]
        assert run("claims", *flags) == 2
        error = capsys.readouterr().err
        assert "rename the file" in error
