"""Progress without a terminal: at most a line per tenth, and one per study, with the time."""

import re
import subprocess
import sys
from dataclasses import replace

import pytest
from rich.text import Text

from recombine.sweep import Progress
from recombine.sweep.bar import TrainingBar, duration
from recombine.sweep.progress import WorkerProgress


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self):
        return self.now


def progress(done, total, *, finished=0, error=float("nan"), members=1):
    return Progress(runs=8, finished=finished, members=members, steps_done=done, steps_left=total - done, error=error)


def test_a_line_per_tenth(capsys):
    clock = Clock()
    bar = TrainingBar(clock)
    with bar:
        for step in range(1, 1001):
            clock.now = step * 0.1
            bar(progress(step, 1000, finished=step // 125, error=0.25))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[0] == "10 s: trained 10 %, 0 of 8 runs, about 1 min 30 s left, MSE 2.5e-01"
    assert lines[-1] == "1 min 40 s: trained 100 %, 8 of 8 runs"


def test_all_steps_done_are_not_all_runs_stored(capsys):
    clock = Clock()
    bar = TrainingBar(clock)
    clock.now = 10.0
    bar(progress(1000, 1000, finished=7))
    assert capsys.readouterr().err == "10 s: trained 100 %, storing the last of 8 runs\n"


def test_a_cluster_shows_what_failed_and_who_is_at_work(capsys):
    clock = Clock()
    bar = TrainingBar(clock)
    clock.now = 10.0
    busy, idle = WorkerProgress("node1-0", 4, 30, 100), WorkerProgress("node2-0", 0, 0, 0)
    now = replace(progress(20, 100, finished=1), failed=2, workers=(busy, idle))
    bar(now)
    assert capsys.readouterr().err == (
        "10 s: trained 20 %, 1 of 8 runs, 2 failed, 1 of 2 workers at work, about 40 s left\n"
    )
    bar.bar.workers = now.workers
    lines = [part.plain for part in bar.bar.get_renderables() if isinstance(part, Text)]
    assert lines == ["  node1-0: 4 members, step 30 of 100", "  1 of 2 workers idle"]


def test_a_training_of_a_moment_says_nothing(capsys):
    clock = Clock()
    bar = TrainingBar(clock)
    for step in range(1, 101):
        clock.now = step * 0.009
        bar(progress(step, 100))
    assert capsys.readouterr().err == ""


def test_a_second_sweep_is_counted_again_and_studies_have_lines(capsys):
    clock = Clock()
    bar = TrainingBar(clock)
    for start in (0, 100):
        for step in range(0, 101, 10):
            clock.now = start + step
            bar(progress(step, 100))
    clock.now = 4000
    bar.say("measured depth in 3.0 s")
    bar.say_above("drew fig1")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 21
    assert lines[10].startswith("1 min 50 s: trained 10 %")
    assert lines[-1] == "1 h 06 min: measured depth in 3.0 s"


def test_errors_that_cannot_be_written_do_not_stop_training(monkeypatch):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        clock = Clock()
        bar = TrainingBar(clock)
        clock.now = 50
        bar(progress(50, 100))
        bar.say("measured depth")
        monkeypatch.undo()
    assert bar.tenth == 5  # it went on counting


def test_nothing_to_train_is_no_tenth(capsys):
    clock = Clock()
    bar = TrainingBar(clock)
    clock.now = 5
    bar(progress(0, 0))
    assert capsys.readouterr().err == ""


def test_waiting_for_others_is_said_once(capsys):
    clock = Clock()
    bar = TrainingBar(clock)
    for second in range(10):
        clock.now = second
        bar(progress(0, 100, members=0))
    for second in (10, 11):  # a moment between two programs
        clock.now = second
        bar(progress(5, 100))
        bar(progress(5, 100, members=0))
    assert capsys.readouterr().err == "3 s: waiting for another process\n"


def test_durations():
    assert [duration(seconds) for seconds in (0.4, 59.4, 61, 3599, 7500)] == [
        "0 s", "59 s", "1 min 01 s", "59 min 59 s", "2 h 05 min",
    ]  # fmt: skip


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
    assert len(done.stderr.splitlines()) <= 11
