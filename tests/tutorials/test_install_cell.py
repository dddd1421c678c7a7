"""The first cell of a tutorial: nothing where the package is there, else a wheel of the folder, else one clear line."""

import os
import subprocess
import sys
import zipfile

import pytest

from tests.tutorials.notebooks import NAMES, code_cells

CELL = next(code_cells(NAMES[0]))[2]
THEN = "\nimport recombine\nprint(recombine.__file__)"


@pytest.fixture
def python(tmp_path):
    """Runs code in a folder, by a Python that has no packages, and whose pip installs into a folder beside it."""
    (tmp_path / "work").mkdir()

    def run(code):
        settings = {"PIP_TARGET": str(tmp_path / "installed"), "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1"}
        environment = {**os.environ, **settings, "PYTHONPATH": str(tmp_path / "installed")}
        return subprocess.run(
            [sys.executable, "-S", "-c", code], cwd=tmp_path / "work", env=environment, capture_output=True, text=True
        )

    return run


def write_wheel(folder, version):
    """The smallest wheel that pip installs."""
    name, info = f"recombine-{version}", f"recombine-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("recombine.py", f"version = {version!r}\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: recombine\nVersion: {version}\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


def test_a_wheel_of_the_folder_is_installed_and_can_be_imported_at_once(python, tmp_path):
    write_wheel(tmp_path / "work", "0.3")
    done = python(CELL + THEN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "installed" / "recombine.py")


def test_without_a_wheel_one_line_says_what_to_do(python):
    done = python(CELL)
    assert done.stderr.splitlines()[-1].startswith("FileNotFoundError: no recombine-*.whl in this folder: upload")


def test_nothing_is_done_where_the_package_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "run", lambda *given, **named: pytest.fail("something was installed"))
    exec(CELL, {})
