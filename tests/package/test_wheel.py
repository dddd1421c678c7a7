"""The wheel away from the repository: it holds what it must, and its commands work on machines that lack things."""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest

from tests.package.installing import CONSTRAINTS, ROOT, Desk, built, environment, pip, pythons
from tests.package.test_data import data_files
from tests.tiny import FLAGS as TINY

pytestmark = pytest.mark.slow
MODULE = """
from torch import nn

def decoder():
    return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 64), nn.Unflatten(1, (8, 8)))
"""
SPACE = ("--grid", "x=0:7,y=0:7", "--holdout", "center:2:5")
TRAINED = "--size 8 --width 4 --depth 2 --steps 20 --seeds 2 --holdout center:2:5 --processes 1"
TRAIN = ("train", *TRAINED.split())
COMMANDS = {
    "train": (TRAIN, "runs"),
    "diagnose": (("diagnose", "mycode:decoder", *SPACE, "--out", "diagnosis"), "diagnosis"),
    "explore": (("explore", "mycode:decoder", *SPACE, "--out", "page.html"), "page.html"),
    "reproduce": (("reproduce", "C7", "--processes", "1", *TINY), "report/index.html"),
}
"""Each command with what it leaves."""
SLOWER = "recombine: compiled kernels are off, training on the CPU is slower ("


@pytest.fixture(scope="module")
def folder():
    """A folder that every user may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="recombine-wheel-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def tree(folder):
    """A copy of what git knows of, as a build leaves files beside its sources."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, files.split("\0")):
        if not name.startswith("results/") and (ROOT / name).is_file():
            (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / "tree" / name)
    return folder / "tree"


@pytest.fixture(scope="module")
def wheel(folder, tree):
    return built(tree, folder / "wheel")


@pytest.fixture(scope="module", params=pythons())
def command(request, folder, wheel):
    return environment(folder / f"python{request.param}", request.param, wheel)


def contents(path):
    """The files of a wheel, by name."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_holds_every_file_of_the_package(wheel, tree):
    names = set(contents(wheel))
    assert {f"recombine/{name}" for name in data_files()} <= names
    modules = {path.relative_to(tree / "src").as_posix() for path in (tree / "src").rglob("*.py")}
    assert modules <= names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"recombine"}, "and nothing else"
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_sdist_builds_the_same_wheel(wheel, tree, folder):
    script = "from setuptools import build_meta; print(build_meta.build_sdist('..'))"
    pip("install", "--target", folder / "setuptools", "setuptools>=77")
    python = [sys.executable, "-c", script]
    variables = {**os.environ, "PYTHONPATH": str(folder / "setuptools")}
    name = subprocess.run(python, cwd=tree, env=variables, check=True, capture_output=True, text=True).stdout.split()[
        -1
    ]
    with tarfile.open(folder / name) as archive:
        files = {file.partition("/")[2] for file in archive.getnames()}
    assert {"CHANGELOG.md", "CITATION.cff", "constraints.txt", "tests/conftest.py", "docs/trust.md"} <= files
    assert contents(built(folder / name, folder / "again")) == contents(wheel)


def desk(folder, command, **options):
    """A new folder with a module of the user's."""
    work = Path(tempfile.mkdtemp(dir=folder))
    work.chmod(0o777)
    (work / "mycode.py").write_text(MODULE)
    return Desk(command, work, **options)


def ended_well(ended):
    assert ended.code == 0, ended.err
    assert "Traceback" not in ended.out + ended.err
    return ended


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_works_without_a_home(name, folder, command):
    words, left = COMMANDS[name]
    place = desk(folder, command, variables={"PATH": os.defpath})
    ended_well(place.run(*words))
    assert (place.folder / left).exists()


@pytest.fixture
def bare(folder, command):
    """The desk of a user who may write there only, with a home that is not theirs and no program on the path."""
    empty = folder / "empty"
    empty.mkdir(exist_ok=True)
    empty.chmod(0o555)
    is_root = os.geteuid() == 0  # whom no folder refuses
    place = desk(folder, command, variables={"HOME": str(empty), "PATH": str(empty)}, is_nobody=is_root)
    try:
        place.run("--version")
    except PermissionError:
        pytest.skip("this Python is in a folder that is closed to others")
    return place


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_works_in_a_home_that_is_read_only_and_without_a_compiler(name, bare):
    words, left = COMMANDS[name]
    ended = ended_well(bare.run(*words))
    assert (bare.folder / left).exists()
    lines = [line for line in ended.err.splitlines() if line.startswith(SLOWER)]
    trains = name in ("train", "reproduce")
    assert lines == [f"{SLOWER}no C++ compiler (c++, g++, clang++))"] * trains, "said once, where something is slower"


@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no compiler")
def test_a_cache_that_cannot_be_written_is_one_line(bare):
    bare.variables["PATH"] = os.defpath
    ended = ended_well(bare.run(*TRAIN))
    lines = [line for line in ended.err.splitlines() if line.startswith(SLOWER)]
    assert len(lines) == 1
    assert "Permission denied" in lines[0]


@pytest.mark.skipif(not CONSTRAINTS, reason="minutes; `make test-wheel` runs it")
def test_a_figure_is_reproduced_as_the_readme_says(folder, command):
    place = desk(folder, command, variables={"PATH": os.defpath, "HOME": str(folder)})
    ended = ended_well(place.run("reproduce", "C7"))
    assert "C7" in ended.out
    assert (place.folder / "report" / "index.html").exists()
