"""Every mistake: exit code 2, one line, no traceback, and a store as it was."""

import hashlib
import json
import os
import resource
import sys
from pathlib import Path

import pytest
import torch

from recombine.store import Store
from recombine.sweep import train
from tests.command import forked, run
from tests.small import small_spec


def snapshot(path: Path) -> dict[str, str]:
    """Every file below a path with a digest of its content."""
    files = [file for file in sorted(path.rglob("*")) if file.is_file()]
    return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A store with one run in it."""
    path = tmp_path_factory.mktemp("filled") / "store"
    train([small_spec("mlp")], path)
    run("runs", "list", "--store", path)  # so that there is an index
    return path


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Places where no store can be."""
    root = tmp_path_factory.mktemp("places")
    (root / "file").write_text("not a directory")
    (root / "foreign").mkdir()
    (root / "foreign" / "thesis.tex").write_text("precious")
    for name, marker in (("garbage", "{"), ("newer", json.dumps({"format": 99}))):
        (root / name).mkdir()
        (root / name / "recombine.json").write_text(marker)
    (root / "folder.csv").mkdir()
    (root / "failing_parts.py").write_text("raise RuntimeError('two\\nlines')\n")
    (root / "leaving_parts.py").write_text("raise SystemExit(0)\n")
    return root


SMALL = "--size 8 --decoder mlp --width 4 --depth 1 --steps 2 --samples 20"

# The words of a command, and a word that its line must contain.
MISTAKES = [
    # usage, in the parser's own words
    ("trian", "train"), ("runs lst", "list"), ("train --sgima 3", "--sigma"), ("train fast", "fast"),
    ("train --sigma", "--sigma"), ("runs show", "RUN"), ("train --store=", "--store"),
    ("train --members 2.5", "--members"), ("reproduce --seeds many", "--seeds"), ("diagnose", "FACTORY"),
    # fields of a spec
    ("train --encoding braille", "encoding"), ("train --device tpu", "device"), ("train --sigma nan", "sigma"),
    ("train --size 7.5", "size"), ("train --width 0", "decoder.width"),
    ("train --decoder cnn:depth=3:depth=4", "depth"), ("train --decoder mlp --decoder.heads 4", "heads"),
    ("train --decoder cnn:width=8 --width 16", "decoder.width"), ("train --task rotation --sigma 2", "sigma"),
    ("train --holdout mask:{places}/absent.npy", "absent.npy"), ("train --holdout center:0:27", "allow_unseen"),
    ("train {small} --remedy hessian+", "remedy"), ("train {small} --decoder mlp:", "FIELD=VALUE"),
    ("runs export {places}/new --layout tar", "--layout"), ("diagnose a:b --weights=", "empty"),
    # other settings
    ("train --seeds -3", "seeds"), ("train --seeds 5..2", "seeds"), ("train --seeds 10000000", "seeds"),
    ("train --members 0", "members"), ("train --checkpoint never", "checkpoint"), ("train --device cuda", "device"),
    ("train --device cpu --precision tf32", "precision"), ("diagnose a:b --grid x=0:3 --store {places}", "store"),
    ("runs show 123xyz", "123xyz"), ("reproduce everything", "everything"), ("reproduce --preset huge", "preset"),
    ("reproduce --set seeeds=1", "seeds"), ("reproduce --set size=-1", "size"), ("claims C99 --from {places}", "C99"),
    # files and folders
    ("train {small} --store {places}/file", "a directory"), ("train {small} --store {places}/foreign", "thesis.tex"),
    ("train {small} --store {places}/garbage", "format"), ("train {small} --store {places}/newer", "99"),
    ("train {small} --store /proc/nowhere/store", "/proc/nowhere"), ("runs list --store {places}/absent", "absent"),
    ("runs export {places}/table.xlsx", "table.xlsx"), ("runs export {places}/folder.csv", "folder.csv"),
    ("runs export {places}/nowhere/x.csv", "x.csv"), ("reproduce --out {places}/file", "out"),
    ("reproduce c1 --out {filled}", "out"), ("report {places}/absent", "absent"),
    # a user's own modules
    ("train --import nowhere", "--import"), ("runs list --import=failing_parts", "RuntimeError: two lines"),
    ("train --import {places}/leaving_parts.py", "SystemExit: 0"), ("train --import", "--import"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), MISTAKES)
def test_mistake_is_one_line_and_changes_nothing(line, expected, filled, places, monkeypatch, capsys):
    if line.endswith("--device cuda") and torch.cuda.is_available():
        pytest.skip("--device cuda is no mistake where there is a GPU")
    monkeypatch.setenv("RECOMBINE_STORE", str(filled))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # of a module that is imported there
    monkeypatch.chdir(places)
    before = snapshot(filled), snapshot(places)
    code = run(*line.format(places=places, small=SMALL, filled=filled).split())
    out, err = capsys.readouterr()
    assert code == 2, err
    assert err.startswith("recombine: ")
    assert err.count("\n") == 1, err
    assert expected in err
    assert out == ""
    assert (snapshot(filled), snapshot(places)) == before


def test_a_traceback_is_shown_where_it_is_asked_for(capsys):
    assert run("train", "--width", "0", "--traceback") == 2
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.splitlines()[-1] == "recombine: decoder.width must be at least 1, got '0'"


def test_full_disk_is_one_line_and_loses_nothing(filled, tmp_path):
    """The kernel refuses to let files of a child grow past a limit: a disk that is really full."""
    kept = {name: digest for name, digest in snapshot(filled).items() if name.startswith("runs/")}
    words = f"train --store {filled} --device cpu --size 8 --decoder mlp --width 64 --steps 3 --samples 20".split()
    done = forked(words, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000))).wait()
    assert done.code == 2, done.err
    assert done.err.count("\n") == 1, done.err
    assert "not full" in done.err
    assert {n: d for n, d in snapshot(filled).items() if n.startswith("runs/")} == kept
    assert all(not problems for _, problems in Store(filled).verify())
    assert os.listdir(filled / "tmp") == []
