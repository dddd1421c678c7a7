"""`--import`, and flags such as `--decoder MODULE:NAME`: parts of one's own at the command line."""

import pickle
import re
import subprocess
import sys

import pytest

import recombine as rc
from recombine.cli.imports import without_imports
from recombine.encodings import ENCODINGS
from recombine.errors import InvalidValue
from recombine.store import Store
from tests.command import captured, run

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
    assert "circular, mixed, ring;" in re.sub(r"[│\s]+", " ", text)  # a list may continue on the next line
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


NAMED = """
from typing import Literal
from torch import nn
import recombine as rc

def by_sizes(interface):
    return nn.Sequential(nn.Linear(interface.code_size, 3), nn.Linear(3, interface.pixels))

def of_fixed_sizes(width=3):
    return nn.Sequential(nn.Linear(16, width), nn.Linear(width, 64))

class Net(nn.Linear):
    def __init__(self, interface):
        super().__init__(interface.code_size, interface.pixels)

class Wide(rc.DecoderSpec):
    kind: Literal["wide_one"] = "wide_one"
    width: int = 4
    def build(self, interface):
        return rc.MLP(width=self.width, depth=1).build(interface)

class Other(rc.BumpTask):
    kind: Literal["other_bumps"] = "other_bumps"

class Blank(rc.BumpTask):
    kind: Literal["blank_bumps"] = "blank_bumps"
    def render(self, values):
        return values.nothing

made = nn.Linear(16, 64)

def breaks(interface):
    raise KeyError("no width")

def too_few(interface):
    return nn.Linear(interface.code_size, 9)
"""
KINDS = ("by_sizes", "of_fixed_sizes", "Net", "wide_one", "breaks", "too_few")


@pytest.fixture
def named(folder, monkeypatch):
    """The folder with a module in which nothing is registered."""
    (folder / "my_named.py").write_text(NAMED)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield folder
    for registry in (rc.DECODERS, rc.TASKS):
        for kind in (*KINDS, "other_bumps", "blank_bumps"):
            registry.pop(kind, None)
    sys.modules.pop("my_named", None)


@pytest.mark.parametrize("name", ["by_sizes", "of_fixed_sizes", "Net", "Wide:width=5"])
def test_a_decoder_is_named_by_its_module_and_found_again(named, capsys, name):
    small = SMALL.replace("--decoder mlp --width 4 --depth 1 ", "")
    assert captured(f"train {small} --decoder my_named:{name} --task=my_named:Other", capsys).code == 0
    (key,) = Store("runs").table().index
    spec = Store("runs").run(key).spec
    assert spec.task.kind == "other_bumps"
    sent = pickle.dumps(spec)
    rc.DECODERS.unregister(spec.decoder.kind)
    rc.TASKS.unregister("other_bumps")
    if "Wide" not in name:
        assert pickle.loads(sent) == spec  # as worker processes receive it
        rc.DECODERS.unregister(spec.decoder.kind)
    with pytest.raises(InvalidValue, match="--import"):
        assert Store("runs").run(key).spec
    assert without_imports(["--import", f"my_named.py:{name.partition(':')[0]}", "--import=my_named:Other"]) == []
    assert Store("runs").run(key).spec == spec


def test_other_text_is_left_alone(named):
    words = ["--decoder", "mlp:width=3", "--holdout=center:2:5", "--training", "x:1", "--remedy", "hessian:1+additive"]
    assert without_imports(words) == words
    with pytest.raises(InvalidValue, match="remedy must be the name of a class in my_named: a Remedy, got"):
        without_imports(["--remedy", "my_named:by_sizes"])
    with pytest.raises(InvalidValue, match=r"decoder must be .* or a function that returns a module"):
        without_imports(["--decoder", "my_named:made"])


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--decoder my_named:breaks", r"(KeyError: 'no width'), got 'breaks'"),
        ("--decoder my_named:too_few", "got 'too_few'"),
        ("--decoder mlp --task my_named:Blank", "my_named.py, line 28, failed: AttributeError"),
    ],
)
def test_an_error_in_ones_own_code_is_one_line(named, capsys, flags, expected):
    small = SMALL.replace("--decoder mlp --width 4 --depth 1 ", "")
    code, out, err = captured(f"train {small} {flags}", capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert expected in err
    assert not (named / "runs").exists() or "task" in flags
    assert "Traceback" in captured(f"train {small} {flags} --traceback", capsys).err
