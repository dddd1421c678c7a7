"""What a wheel will hold and say, by pyproject.toml; test_wheel.py builds one."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "recombine"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
GLOBS = PYPROJECT["tool"]["setuptools"]["package-data"]["recombine"]
NEEDED = (
    "py.typed", "__init__.pyi", "page/page.html.j2", "page/matmul.wasm", "page/widget.js",
    "page/script/training/worker.js", "recombine.mplstyle", "reproduction/report/page.css",
    "reproduction/report/page.js", "kernels/cpp/network.cpp", "kernels/cpp/layers.h",
    "papers/forced_rendering/marker_auroc.json", "papers/forced_rendering/reference.json",
    "tasks/digits/digits.npy", "tasks/digits/PROVENANCE.md",
)  # fmt: skip
"""Some of each kind, which the globs are held against by name."""


def data_files():
    """Files of the package that are no Python modules."""
    paths = (path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(PACKAGE).as_posix() for path in paths if path.suffix != ".py"}


def matched(glob):
    return {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.glob(glob) if path.is_file()}


def test_every_file_that_is_no_module_is_in_the_wheel():
    assert data_files() - set().union(*map(matched, GLOBS)) == set()
    assert set(NEEDED) <= data_files()


def test_every_folder_with_data_is_a_package_or_within_one():
    """`packages.find` takes folders with an `__init__.py`; a module elsewhere would be left out."""
    for path in PACKAGE.rglob("*.py"):
        folders = [folder for folder in path.parents if PACKAGE in (folder, *folder.parents)]
        assert all((folder / "__init__.py").exists() for folder in folders), path


def test_every_tool_of_a_release_has_an_exact_version():
    pins = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    extras = PROJECT["optional-dependencies"]
    names = {re.match(r"[\w-]+", line)[0].lower() for line in extras["release"]}
    assert names <= pins
    assert "release" not in str(extras["dev"]), "`make setup` does without them"
