"""Help texts: every choice is listed from where it is registered, and every sentence is said once."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys

import pytest

from recombine.cli import COMMANDS
from recombine.cli.sweep import PARTS as SPEC_PARTS
from recombine.decoders import DECODERS
from recombine.papers.forced_rendering import PAPER as DEFAULT
from recombine.tasks import TASKS
from recombine.training import DEVICES
from tests.command import run


def of_papers():
    """Decoders of papers, which a command knows only if it reads the paper: other tests do."""
    return [name for name, own in DECODERS.items() if not own.__module__.startswith("recombine.decoders.")]


CHOICES = {
    "train": [
        *({kind for registry in SPEC_PARTS.values() for kind in registry} - {*of_papers()}),
        *TASKS,
        *DEVICES,
        "bf16",
        "integer",
    ],
    "diagnose": [*SPEC_PARTS["encoding"], *SPEC_PARTS["holdout"], "exact", "differences"],
    "explore": [*SPEC_PARTS["encoding"], *SPEC_PARTS["holdout"]],
    "reproduce": [*DEFAULT.studies, list(DEFAULT.claims)[-1], "conventions", *DEFAULT.presets, *DEVICES],
    "figure": list(DEFAULT.figures),
    "claims": list(DEFAULT.claims),
}
ALL = [*COMMANDS, *(f"runs {name}" for name in ("list", "show", "prune", "export"))]


def help_of(command, width, monkeypatch, flag="--help-all"):
    monkeypatch.setenv("COLUMNS", str(width))
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert run(*command.split(), flag) == 0
    return output.getvalue()


@pytest.mark.parametrize("command", CHOICES)
def test_choices_are_listed(command, monkeypatch):
    words = set(re.findall(r"\w+", help_of(command, 160, monkeypatch)))
    assert set(CHOICES[command]) <= words


@pytest.fixture(scope="module")
def fresh_texts():
    """The help of every command in a process without the parts of papers and of other tests."""
    script = f"""
import contextlib, io, json
from tests.command import run
texts = {{}}
for command in {ALL}:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        run(*command.split(), "--help")
    texts[command] = output.getvalue()
print(json.dumps(texts))
"""
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "COLUMNS": "100"}, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("command", ALL)
def test_help_fits_two_screens(command, fresh_texts, monkeypatch):
    text = fresh_texts[command]
    assert 5 < text.count("\n") <= 80
    if command == "train":
        assert "--width" in text
        assert "--holdout.low" not in text
        assert "--holdout.low" in help_of(command, 100, monkeypatch)


@pytest.mark.parametrize("command", ALL)
def test_everything_is_described_within_eighty_columns(command, monkeypatch):
    text = help_of(command, 80, monkeypatch)
    assert max(len(line) for line in text.splitlines()) <= 80
    for line in text.splitlines():  # a name beside an empty description
        assert not re.fullmatch(r"│ [* ]*[A-Z-]+( STR| PATH| INT)?(\.\.\.)? +(\[required\] +)?│", line), line
