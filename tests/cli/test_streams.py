"""Standard output and error in every state a shell can put them in: no traceback, and the exit code one expects."""

import os
import subprocess
import sys

import pytest

from recombine.store import Store
from recombine.sweep import train
from tests.small import small_spec

READER_LEFT = 141


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a store of two runs."""
    path = tmp_path_factory.mktemp("streams")
    train([small_spec("mlp", seed=0), small_spec("mlp", seed=1)], path / "runs")
    Store(path / "runs").table()
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


def rarely(*values):
    """Values for the slow tests: others meet the same code."""
    return [pytest.param(*([value] if isinstance(value, str) else value), marks=pytest.mark.slow) for value in values]


LOST = "recombine: output: cannot be written ({}); what was done is kept\n"
CLOSED, FULL = LOST.format("Bad file descriptor"), LOST.format("No space left on device")


@pytest.mark.parametrize(
    ("line", "code", "errors"),
    [
        ("recombine runs list >&-", 2, CLOSED),
        ("recombine runs list > /dev/full", 2, FULL),
        ("recombine runs list 2>&-", 0, ""),
        ("recombine runs list --where nothing 2> /dev/full", 2, ""),
        ("recombine runs list >&- 2>&- <&-", 2, ""),
        ("recombine --version > /dev/full", 2, FULL),
        ("recombine runs export x.csv > /dev/full; cat x.csv; exit $?", 0, FULL),
        ("recombine runs list | true; exit ${PIPESTATUS[0]}", READER_LEFT, ""),
        *rarely(
            ("recombine runs list --where nothing 2>&-", 2, ""),
            ("recombine --help >&-", 2, CLOSED),
            ("recombine --help > /dev/full", 2, FULL),
            ("recombine verify runs > /dev/full", 2, FULL),
            ("recombine runs list --help | true; exit ${PIPESTATUS[0]}", READER_LEFT, ""),
            ("yes n | recombine runs list | head -1; exit ${PIPESTATUS[2]}", 0, ""),
        ),
    ],
)
def test_output_that_goes_nowhere(line, code, errors, folder):
    result, _, said = shell(line, folder)
    assert result == code
    assert said == errors


def test_a_closed_descriptor_is_never_a_file_of_the_store(folder):
    """What would be written to a closed standard error must not end up in the file that takes its number."""
    code = "import os, recombine.cli as c\ntry: c.main(['--version'])\nfinally: print(os.readlink('/proc/self/fd/2'))"
    result, out, _ = shell(f'"{sys.executable}" -c "{code}" 2>&- | tail -1', folder)
    assert result == 0
    assert out == "/dev/null\n"


def test_work_is_done_though_nothing_can_be_written(folder):
    small = "--size 8 --decoder mlp --width 4 --depth 1 --steps 2 --samples 20 --device cpu"
    assert shell(f"recombine train {small} --store other > /dev/full", folder)[0] == 2
    code, out, _ = shell("recombine runs list --store other", folder)
    assert code == 0
    assert "1 finished run in other" in out
    line = f"recombine train {small} --seeds 2 --processes 2 --store other"
    code, out, _ = shell(f"{line} 2>&- <&-", folder, PYTHONIOENCODING="ascii")
    assert code == 0
    assert "mean +- standard deviation" in out
    assert out.isascii()


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param({"PYTHONIOENCODING": "ascii"}, marks=pytest.mark.slow, id="ascii"),
        pytest.param({"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}, id="C without coercion"),
        pytest.param({"LC_ALL": "C"}, marks=pytest.mark.slow, id="C"),
    ],
)
def test_any_encoding(environment, folder):
    line = "recombine runs list; recombine train --help; recombine runs show $(ls runs/runs | head -1)"
    code, out, errors = shell(line, folder, **environment)
    assert (code, errors) == (0, "")
    assert "2 finished runs" in out
    assert out.isascii() == (environment != {"LC_ALL": "C"})


def test_a_letter_that_cannot_be_written_is_not_shown_as_another(folder):
    code, out, errors = shell("cp -r runs é; recombine runs list --store é", folder, PYTHONIOENCODING="ascii")
    assert (code, errors) == (0, "")
    assert r"2 finished runs in \xe9" in out


def test_names_of_files_that_are_no_text(folder):
    code, out, errors = shell(r"cp -r runs $'b\xffd[x]'; recombine runs list --store $'b\xffd[x]'", folder)
    assert (code, errors) == (0, "")
    assert r"2 finished runs in b\xffd[x]" in out


@pytest.mark.parametrize("columns", ["0", "-3", "1", *rarely("²", "99999999999999999999", "wide")])
def test_any_number_of_columns(columns, folder):
    code, out, errors = shell("recombine runs list; recombine runs --help", folder, COLUMNS=columns, LINES=columns)
    assert (code, errors) == (0, "")
    assert "2 finished runs" in out


@pytest.mark.parametrize("name", ["[/x]", "e\x1b[31mf", *rarely("[red]x", "[bold]a[/bold]", "a:b:", r"\[x]")])
def test_no_text_is_markup(name, folder):
    """In a path that is written, and in one that is refused."""
    visible = name.replace("\x1b", r"\x1b")
    (folder / f"to {name}").mkdir(parents=True, exist_ok=True)
    command = f"{sys.executable} -m recombine runs"
    for words, code in (
        (["export", f"to {name}/x.csv", "--store", "runs"], 0),
        (["list", "--store", f"absent {name}"], 2),
    ):
        done = subprocess.run([*command.split(), *words], cwd=folder, capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stderr
        assert (repr(name)[1:-1] if code else visible) in done.stdout + done.stderr
        assert "\x1b" not in done.stdout + done.stderr
