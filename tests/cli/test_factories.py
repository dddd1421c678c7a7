"""A user's own code and files at the command line: used as they are meant, or refused in one line."""

import os

import numpy as np
import pytest
from safetensors.torch import save_file
from torch import nn

from tests.command import captured

CODE = """
from torch import nn
import beside

module = nn.Linear(2, 3)

def factory():
    return nn.Linear(2, 3)

class Group:
    member = staticmethod(factory)

def needs(width):
    return nn.Linear(2, width)

def raises():
    return {}["missing"]

class Never(nn.Module):
    def forward(self, values):
        raise KeyError("no such layer")

"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A user's folder with code, code that cannot be imported, and arrays of all kinds."""
    path = tmp_path_factory.mktemp("user")
    (path / "below").mkdir()
    for name in ("mods.py", "below/mods.py", "below/json.py"):
        (path / name).write_text(CODE)
    for name in ("beside.py", "below/beside.py"):
        (path / name).write_text("")
    (path / "broken.py").write_text("def factory(:\n")
    (path / "imports.py").write_text("import a_package_that_is_not_there\n")
    right = np.arange(75, dtype=float).reshape(25, 3) / 75
    arrays = {
        "right": right, "big_endian": right.astype(">f4"), "extended": right.astype(np.longdouble),
        "flat": right.reshape(-1), "objects": np.array([{}] * 25, dtype=object), "nan": np.full((25, 3), np.nan),
        "points": np.ones((5, 5), dtype=">i4"), "mask": np.eye(5, dtype=bool), "other_mask": np.eye(4, dtype=bool),
    }  # fmt: skip
    for name, array in arrays.items():
        np.save(path / f"{name}.npy", array)
    header = (path / "right.npy").read_bytes().replace(b"(25, 3), }", b"(9**9, 3)}")
    (path / "program.npy").write_bytes(header)
    (path / "deep.json").write_text("[" * 100_000)
    os.mkfifo(path / "pipe.json")
    save_file(nn.Linear(2, 3).state_dict(), path / "right.safetensors")
    save_file(nn.Linear(2, 4).state_dict(), path / "other.safetensors")
    return path


@pytest.fixture
def diagnose(folder, monkeypatch, capsys):
    """Runs the command in the user's folder: exit code, output, error."""
    monkeypatch.chdir(folder)

    def command(words):
        return captured(["diagnose", *words.split(), "--grid", "x=0:4,y=0:4"], capsys)

    return command


@pytest.mark.parametrize(
    "words",
    [
        "mods:factory", "mods.py:factory", "./mods.py:factory", "below/mods.py:factory", "below/json.py:factory",
        "{folder}/mods.py:module", "mods:Group.member", "mods:module --weights right.safetensors",
        "mods:module --targets right.npy", "mods:module --targets big_endian.npy",
        "mods:module --targets extended.npy", "mods:module --holdout mask:mask.npy",
    ],
)  # fmt: skip
def test_a_users_code_and_files_are_taken(words, folder, diagnose):
    code, out, err = diagnose(words.format(folder=folder))
    assert code == 0, err
    assert "output" in out
    assert ("id_error" in out) == ("--targets" in words)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("mods:needs", "needs() missing 1 required positional argument: 'width'"),
        ("mods:raises", "(KeyError: 'missing')"),
        ("mods:absent", "no attribute 'absent'"),
        ("./broken.py:factory", "(SyntaxError: "),
        ("imports.py:factory", "No module named 'a_package_that_is_not_there'"),
        ("absent.py:factory", "no file absent.py"),
        ("mods.py:", "factory"),
        ("mods:Never", "(KeyError: 'no such layer')"),
        ("mods:module --weights other.safetensors", "the weights of this module"),
        ("mods:module --weights mods.py", "a valid .safetensors file"),
        ("mods:module --targets flat.npy", "25 rows"),
        ("mods:module --targets objects.npy", "an intact .npy file"),
        ("mods:module --targets nan.npy", "finite numbers"),
        ("mods:module --targets program.npy", "an intact .npy file"),
        ("mods:module --holdout mask:points.npy", "a boolean .npy array"),
        ("mods:module --holdout mask:other_mask.npy", "(5, 5)"),
        ("mods:module --holdout mask:deep.json", "a .json file (list of points)"),
        ("mods:module --holdout mask:pipe.json", "not a regular file"),
    ],
)
def test_what_cannot_be_used_is_one_line(words, expected, diagnose):
    code, out, err = diagnose(words)
    assert code == 2, err
    assert err.count("\n") == 1, err
    assert expected in err
    assert out == ""
