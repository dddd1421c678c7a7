"""Help texts: every choice is listed from where it is registered, and every sentence is said once."""

import contextlib
import io
import re

import pytest

from recombine.cli import COMMANDS
from recombine.cli.flags import PARTS as SPEC_PARTS
from recombine.cli.flags import spec_flags
from recombine.papers import DEFAULT
from recombine.tasks import TASKS, Task
from recombine.training import DEVICES
from tests.command import run

CHOICES = {
    "train": [*(kind for registry in SPEC_PARTS.values() for kind in registry), *TASKS, *DEVICES, "bf16", "integer"],
    "diagnose": [*SPEC_PARTS["encoding"], *SPEC_PARTS["holdout"], "exact", "differences"],
    "explore": [*SPEC_PARTS["encoding"], *SPEC_PARTS["holdout"]],
    "reproduce": [*DEFAULT.studies, list(DEFAULT.claims)[-1], "conventions", *DEFAULT.presets, *DEVICES],
    "figure": list(DEFAULT.figures),
    "claims": list(DEFAULT.claims),
}
ALL = [*COMMANDS, *(f"runs {name}" for name in ("list", "show", "prune", "export"))]


def help_of(command, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert run(*command.split(), "--help") == 0
    return output.getvalue()


@pytest.mark.parametrize("command", CHOICES)
def test_choices_are_listed(command, monkeypatch):
    words = set(re.findall(r"\w+", help_of(command, 160, monkeypatch)))
    assert set(CHOICES[command]) <= words


@pytest.mark.parametrize("command", ALL)
def test_everything_is_described_within_eighty_columns(command, monkeypatch):
    text = help_of(command, 80, monkeypatch)
    assert max(len(line) for line in text.splitlines()) <= 80
    for line in text.splitlines():  # a name beside an empty description
        assert not re.fullmatch(r"│ [* ]*[A-Z-]+( STR| PATH| INT)?(\.\.\.)? +(\[required\] +)?│", line), line


def test_a_sentence_is_said_once():
    for flag in spec_flags():
        sentences = [part.strip() for part in re.split(r"(?<=\.) ", flag.help) if "Default" not in part]
        assert len(sentences) == len(set(sentences)), flag.help


def test_a_field_that_all_tasks_have_is_described_once():
    flags = {flag.name: flag.help for flag in spec_flags()}
    for name, info in Task.model_fields.items():
        if name != "kind":
            text = " ".join(info.description.replace("`", "").split())
            assert flags[name].count(text) == 1, name
            assert not re.search(rf"\b({'|'.join(TASKS)}): ", flags[name].partition(text)[0]), name
    assert flags["size"].count("Rows and columns") == 1


def test_one_store_one_description(monkeypatch):
    said = {re.search(r"--store(?: PATH)? +(.*?) *│", help_of(command, 160, monkeypatch))[1]
            for command in ("train", "diagnose", "reproduce", "runs list", "runs prune")}  # fmt: skip
    assert said == {"Directory of runs. Default: $RECOMBINE_STORE or ./runs."}
