"""The commands, as a user types them."""

import csv
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from recombine.cli.sweep import parse_seeds, spec_flags
from recombine.specs import Recipe
from recombine.store import Store
from recombine.tasks import BumpTask
from tests.command import captured as run
from tests.command import forked

SMALL = "--size 8 --decoder mlp --width 4 --depth 1 --steps 4 --samples 20"


def imported_by(*words):
    """The output of a command, and which of the slow packages it imported."""
    slow = {"torch", "numpy", "pydantic", "matplotlib", "xarray"}
    show = f"print('SLOW', *{slow} & set(sys.modules))"
    code = f"import sys, recombine.cli as c\ntry: c.main({list(words)})\nfinally: {show}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    text, _, found = done.stdout.partition("SLOW")
    return text, set(found.split())


def test_help_answers_without_slow_imports():
    text, slow = imported_by("--help")
    assert "train" in text
    assert slow == set()


def test_looking_after_a_store_does_not_import_torch(store_path):
    Store(store_path)
    text, slow = imported_by("runs", "list")
    assert "0 finished runs" in text
    assert "torch" not in slow


def test_every_field_of_the_spec_is_a_flag():
    names = {flag.name for flag in spec_flags()}
    assert set(BumpTask.model_fields) - {"kind"} <= names
    assert set(Recipe.model_fields) <= names
    assert {"decoder", "decoder.width", "encoding.variance", "holdout.low", "training.samples"} <= names
    assert all(flag.help.strip() for flag in spec_flags())


def test_train_ends_with_a_table_and_serves_the_second_time(store_path, capsys):
    line = f"train {SMALL} --encoding bump --encoding rate --seeds 2 --device cpu"
    code, first, _ = run(line, capsys)
    assert code == 0
    for heading in ("ID MSE", "OOD MSE", "ID/blank", "OOD/blank", "ID acc.", "OOD acc.", "±"):
        assert heading in first
    assert re.search(r"^encoding=bump +2 ", first, re.MULTILINE)
    assert re.search(r"^encoding=rate +2 ", first, re.MULTILINE)
    stamps = {path: path.stat().st_mtime_ns for path in store_path.glob("runs/*/*")}
    code, second, _ = run(line, capsys)
    assert second == first
    assert {path: path.stat().st_mtime_ns for path in store_path.glob("runs/*/*")} == stamps


@pytest.mark.parametrize(
    ("words", "seeds"),
    [
        (None, [0]),
        (["3"], [0, 1, 2]),
        (["2..4"], [2, 3, 4]),
        (["7,9"], [7, 9]),
        (["0..1", "8,9"], [0, 1, 8, 9]),
    ],
)
def test_seeds(words, seeds):
    assert parse_seeds(words) == seeds


def test_runs_commands(store_path, capsys, tmp_path):
    run(f"train {SMALL} --seeds 2 --device cpu", capsys)
    code, listed, _ = run("runs list", capsys)
    assert code == 0
    assert "2 finished runs" in listed
    key = next(iter(Store(store_path))).key
    assert key[:10] in listed
    code, shown, _ = run(f"runs show {key[:8]}", capsys)
    assert code == 0
    for part in (key, "task.sigma", "ood_over_blank", "torch", "precision"):
        assert part in shown
    assert run(f"verify {store_path}", capsys)[0] == 0

    code, _, _ = run(f"runs export {tmp_path / 'table.csv'}", capsys)
    rows = list(csv.DictReader((tmp_path / "table.csv").open()))
    assert [row["seed"] for row in rows] == ["0", "1"]
    assert {"task.encoding.kind", "ood_over_blank", "key"} <= set(rows[0])
    run(f"runs export {tmp_path / 'copy'}", capsys)
    assert len(Store(tmp_path / "copy")) == 2

    path = store_path / "runs" / key / "weights.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    code, found, _ = run(f"verify {store_path}", capsys)
    assert code == 1
    assert f"{key}: weights.safetensors: content changed" in found
    run(f"train {SMALL} --seeds 2 --device cpu", capsys)
    assert run(f"verify {store_path}", capsys)[0] == 0
    code, pruned, _ = run("runs prune --dry-run", capsys)
    assert "would delete 1 leftover, 0 runs" in pruned
    assert "deleted 1 leftover, 1 run, 0 checkpoints" in run(f"runs prune {key}", capsys)[1]
    assert "1 finished run in" in run("runs list", capsys)[1]


def test_interrupted_training_says_so_and_goes_on(store_path, capsys):
    words = "train --device cpu --size 8 --width 4 --depth 1 --samples 400 --epochs 20"
    child = forked([*words.split(), "--checkpoint", "0"])
    deadline = time.monotonic() + 90
    while not list(store_path.glob("checkpoints/*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(child.number, signal.SIGTERM)
    code, _, err = child.wait()
    assert code == 130
    assert err.splitlines()[-1] == "recombine: interrupted; run the same command to continue"
    assert all(": trained " in line for line in err.splitlines()[:-1])
    assert len(Store(store_path).unfinished()) == 1
    assert all(not problems for _, problems in Store(store_path).verify())
    code, finished, _ = run(words, capsys)
    assert code == 0
    _, alone, _ = run(f"{words} --store {store_path}2", capsys)
    assert finished.splitlines()[:-1] == alone.splitlines()[:-1]


def test_an_interruption_is_said(store_path, monkeypatch, capsys):
    """The parser's own handler exits without a word."""

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("recombine.cli.runs.Store", interrupted)
    code, _, error = run("runs list", capsys)
    assert code == 130
    assert error.startswith("recombine: interrupted")
