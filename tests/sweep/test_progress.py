"""Progress: a bar where somebody sees it, elsewhere at most a line per tenth, with the time."""

import re
import subprocess
import sys

import pytest
from rich.console import Console

import recombine as rc
from recombine.sweep import Progress
from recombine.sweep import progress as progresses
from recombine.sweep.progress import TrainingBar


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def progress(done, total, finished=0, members=1, error=float("nan")):
    return Progress(8, finished, members, done, total - done, error)


def test_without_a_terminal_there_is_a_line_per_tenth(capsys):
    clock = Clock()
    bar = TrainingBar(clock)
    for start in (0, 100):  # a second sweep is counted again
        for step in range(101):
            clock.now = start + step
            bar(progress(step, 100, finished=step // 20, error=0.25))
    clock.now = 4000
    bar.say("measured depth in 3.0 s")
    bar.say_above("drew fig1")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 21
    assert lines[2] == "30 s: trained 30 %, 1 of 8 runs, about 1 min 10 s left, MSE 2.5e-01"
    assert lines[10].startswith("1 min 50 s: trained 10 %")
    assert lines[-1] == "1 h 06 min: measured depth in 3.0 s"


def test_a_training_of_a_moment_and_nothing_to_train_say_nothing(capsys):
    clock = Clock()
    bar = TrainingBar(clock)
    for step in range(1, 101):
        clock.now = step * 0.009
        bar(progress(step, 100))
    clock.now = 50
    TrainingBar(clock)(progress(0, 0))
    assert capsys.readouterr().err == ""


@pytest.fixture
def screen(monkeypatch):
    """What stands for standard error, as a terminal or a notebook."""
    made = Console(force_terminal=True, record=True, width=100, stderr=True)
    monkeypatch.setattr(progresses, "console", lambda stderr: made)
    return made


def test_a_terminal_shows_runs_members_and_error(screen):
    with TrainingBar() as bar:
        bar(progress(50, 100, finished=3, members=2, error=0.25))
        bar.say("a worker [b]left[/b]")
        (task,) = bar.bar.tasks
        assert (task.completed, task.total, task.fields["runs"]) == (50, 100, "3/8")
        assert task.fields["detail"].startswith("2 members · ")
        assert task.fields["detail"].endswith(" · MSE 2.5e-01")
    assert (task.completed, task.fields["runs"]) == (100, "8/8")


@pytest.mark.parametrize(
    ("setting", "watched", "terminal", "shown"),
    [("auto", False, True, True), ("auto", False, False, False), ("auto", True, True, False),
     (True, True, False, True), (True, False, False, True), (False, False, True, False)],
)  # fmt: skip
def test_where_a_bar_is_shown(setting, watched, terminal, shown, monkeypatch, tmp_path):
    entered = []
    monkeypatch.setattr(progresses, "console", lambda stderr: Console(force_terminal=terminal, stderr=True))
    monkeypatch.setattr(TrainingBar, "__enter__", lambda bar: entered.append(bar) or bar)
    rc.train([], tmp_path / "runs", progress=setting, watch=print if watched else None)
    assert bool(entered) == shown


@pytest.mark.slow
def test_reproduce_says_what_it_does(tmp_path):
    words = "reproduce encodings --set size=8 --set width=4 --set steps=3 --set samples=40 --processes 1 --device cpu"
    done = subprocess.run(
        [sys.executable, "-m", "recombine", *words.split(), "--out", "report", "--store", "runs"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if ": trained " not in line]
    assert [re.sub(r"[\d.]+ s", "N s", line) for line in lines] == ["N s: measured encodings in N s"]
