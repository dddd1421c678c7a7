"""Readers that leave, full disks, odd names: no traceback, and the exit code one expects."""

import os
import subprocess
import sys

import pytest

from recombine.console import say, write_error
from recombine.store import Store
from recombine.sweep import train
from tests.small import small_spec

READER_LEFT = 141


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a store of two runs."""
    path = tmp_path_factory.mktemp("streams")
    train([small_spec("mlp", seed=0), small_spec("mlp", seed=1)], path / "runs")
    return path


def shell(line, folder, **environment):
    """Exit code, output and errors of a line of shell, in which `recombine` is this package."""
    own = {name: value for name, value in os.environ.items() if name not in ("RECOMBINE_STORE", "COLUMNS", "LINES")}
    script = f'recombine() {{ "{sys.executable}" -m recombine "$@"; }}; {line}'
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env={**own, **environment}, capture_output=True, timeout=120
    )
    errors = done.stderr.decode()
    assert "Traceback" not in errors, errors
    assert "Exception ignored" not in errors, errors
    return done.returncode, done.stdout.decode(), errors


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("recombine runs list > /dev/full", 2),
        ("recombine runs list | true; exit ${PIPESTATUS[0]}", READER_LEFT),
    ],
)
def test_output_that_goes_nowhere(line, code, folder):
    assert shell(line, folder)[0] == code


def test_work_is_done_though_nothing_can_be_written(folder):
    small = "--size 8 --decoder mlp --width 4 --depth 1 --steps 2 --samples 20 --device cpu"
    assert shell(f"recombine train {small} --store other > /dev/full", folder)[0] == 2
    assert len(Store(folder / "other")) == 1


def test_no_text_is_markup_and_no_control_character_is_written(capsys):
    say("[/x] e\x1b[31mf")
    write_error("[red]e\x1b[31mf")
    assert capsys.readouterr() == ("[/x] e\\x1b[31mf\n", "[red]e\\x1b[31mf\n")
