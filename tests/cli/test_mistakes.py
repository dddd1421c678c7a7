"""Every mistake: exit code 2, one line with field, value and what is allowed, and a store as it was."""

import hashlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from recombine.store import Store
from recombine.sweep import train
from tests.command import run
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
    Store(path).table()
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
    (root / "ints.npy").write_bytes(b"not numpy")
    (root / "marked.md").write_text("<!-- engine_other: begin -->\n<!-- engine_other: end -->\n")
    (root / "folder.csv").mkdir()
    (root / "wrong_parts.py").write_text("def f(:\n")
    (root / "failing_parts.py").write_text("raise RuntimeError('two\\nlines')\n")
    (root / "leaving_parts.py").write_text("raise SystemExit(0)\n")
    (root / "taken_parts.py").write_text(TAKEN)
    return root


TAKEN = """
from typing import Literal
from recombine.encodings import ENCODINGS, Encoding

@ENCODINGS.register
class Another(Encoding):
    kind: Literal["bump"] = "bump"
"""


SMALL = "--size 8 --decoder mlp --width 4 --depth 1 --steps 2 --samples 20"

# The words of a command, and what its one line must contain.
MISTAKES = {
    "unknown command": ("trian", "command: 'trian'"),
    "unknown runs command": ("runs lst", "command: 'lst'"),
    "unknown option": ("train --sgima 3", "'--sgima' is not allowed; allowed: --sigma"),
    "stray argument": ("train fast", "fast"),
    "option without value": ("train --sigma", "sigma"),
    "missing run": ("runs show", "run"),
    "unknown encoding": ("train --encoding braille", "encoding: 'braille'"),
    "unknown decoder": ("train --decoder gan", "decoder: 'gan'"),
    "unknown holdout": ("train --holdout triangle", "holdout: 'triangle'"),
    "unknown training rule": ("train --training some", "training: 'some'"),
    "unknown task": ("train --task video", "task: 'video'"),
    "unknown polarity": ("train --polarity grey", "polarity: 'grey'"),
    "unknown precision": ("train --precision fp8", "precision: 'fp8'"),
    "unknown device": ("train --device tpu", "device: 'tpu'"),
    "unknown direction": ("train --direction up", "direction: 'up'"),
    "unknown centers": ("train --centers complex", "centers: 'complex'"),
    "negative sigma": ("train --sigma -1", "sigma: '-1'"),
    "zero sigma": ("train --sigma 0", "sigma: '0'"),
    "sigma absurd": ("train --sigma 1e200", "sigma: '1e200'"),
    "batch absurd": ("train --batch 1000000000", "batch: '1000000000'"),
    "width absurd": ("train --width 3000000", "--width: '3000000'"),
    "samples absurd": ("train --training draws:100000000000", "--training draws:100000000000: samples: '100000000000'"),
    "steps absurd": ("train --steps 100000000000000000000000", "steps: '100000000000000000000000'"),
    "mixing absurd": ("train --isolated --mixing 1e-12", "mixing: '1e-12'"),
    "bound not a number": ("train --holdout center:a:5", "--holdout center:a:5: low: 'a'"),
    "mixing with nothing": ("train --isolated --mixing 0.5 --training pick:0", "--mixing: '0.5'"),
    "notch outside": ("train --holdout L:3:9:12", "--holdout L:3:9:12: notch: 12"),
    "export where no folder is": ("runs export {places}/nowhere/x.csv", "x.csv' is not allowed; allowed: a file"),
    "sigma not a number": ("train --sigma wide", "sigma: 'wide'"),
    "sigma nan": ("train --sigma nan", "sigma: 'nan'"),
    "size one": ("train --size 1", "size: '1'"),
    "size huge": ("train --size 100000", "size: '100000'"),
    "size fraction": ("train --size 7.5", "size: '7.5'"),
    "depth zero": ("train --depth 0", "--depth: '0'"),
    "width negative": ("train --width -4", "--width: '-4'"),
    "field the decoder lacks": ("train --decoder mlp --decoder.heads 4", "decoder.heads: '4'"),
    "field the encoding lacks": ("train --encoding rate --encoding.variance 3", "encoding.variance: '3'"),
    "too many fields": ("train --encoding bump:1:2:3", "--encoding bump:1:2:3: '2'"),
    "field twice": ("train --decoder cnn:depth=3:depth=4", "--decoder cnn:depth=3:depth=4: depth: '4'"),
    "heads do not divide width": ("train --decoder transformer:heads=5", "--decoder transformer:heads=5: width: 128"),
    "rank zero": ("train --decoder low_rank:rank=0", "--decoder low_rank:rank=0: rank: '0'"),
    "box outside the grid": ("train --holdout center:6:28", "--holdout center:6:28: high: 28"),
    "box outside a smaller grid": ("train --size 10 --holdout center:6:22", "--holdout center:6:22: high: 22"),
    "box upside down": ("train --holdout center:20:10", "--holdout center:20:10: high: 10"),
    "hold-out removes a whole value": ("train --holdout center:0:27", "removes x=0"),
    "published cross removes whole values": ("train --holdout cross:10:17:0:27", "--allow-unseen"),
    "everything held out": ("train --holdout center:0:27 --allow-unseen", "keeps at least one"),
    "bounds for three factors": ("train --holdout center:1,2,3:4", "low: (1, 2, 3)"),
    "fraction above one": ("train --holdout center:fraction=1.2", "fraction: '1.2'"),
    "random too much": ("train --holdout random:0.999", "--holdout random:0.999: fraction: 0.999"),
    "mask file absent": ("train --holdout mask:{places}/absent.npy", "absent.npy"),
    "mask file unreadable": ("train --holdout mask:{places}/ints.npy", "ints.npy"),
    "more samples than exist": ("train --training pick:496", "--training pick:496: samples: 496"),
    "no samples": ("train --training pick:0", "at least one training example"),
    "percent above hundred": ("train --training percent:150", "--training percent:150: '150'"),
    "stripes without population code": ("train --isolated --encoding rate", "encoding: 'rate'"),
    "mixing without stripes": ("train --mixing 0.5", "--mixing: '0.5'"),
    "mixing of one": ("train --isolated --mixing 1", "mixing: '1'"),
    "real centres with one-hot": ("train --centers real --encoding onehot", "encoding: 'onehot'"),
    "real centres, each once": ("train --centers real --training each", "training: 'each'"),
    "decoder of the other direction": ("train --direction encode --decoder cnn", "decoder: 'cnn'"),
    "encoder asked to decode": ("train --decoder encoder", "decoder: 'encoder'"),
    "penalty without low rank": ("train --entropy 0.1", "--entropy: '0.1'"),
    "negative penalty": ("train --decoder low_rank --variance -1", "variance: '-1'"),
    "learning rate zero": ("train --lr 0", "lr: '0'"),
    "learning rate infinite": ("train --lr inf", "lr: 'inf'"),
    "batch zero": ("train --batch 0", "batch: '0'"),
    "epochs zero": ("train --epochs 0", "epochs: '0'"),
    "epochs and steps": ("train --epochs 3 --steps 3", "steps: '3'"),
    "beta of one": ("train --beta1 1", "--beta1: '1'"),
    "seeds negative": ("train --seeds -3", "seeds: '-3'"),
    "seeds zero": ("train --seeds 0", "seeds: '0'"),
    "seeds not numbers": ("train --seeds few", "seeds: 'few'"),
    "seeds backwards": ("train --seeds 5..2", "seeds: '5..2'"),
    "seeds overlapping": ("train --seeds 0..3 --seeds 2..5", "2, 3 comes twice"),
    "seeds too many": ("train --seeds 10000000", "100000 seeds at most"),
    "a value twice": ("train --encoding bump --encoding bump", "--encoding bump --encoding bump"),
    "device twice": ("train --device cpu --device cpu", "device"),
    "members zero": ("train --members 0", "--members: '0'"),
    "members not a number": ("train --members all", "members: 'all'"),
    "checkpoint never": ("train --checkpoint never", "checkpoint: 'never'"),
    "checkpoint negative": ("train --checkpoint -1", "--checkpoint: '-1'"),
    "cuda absent": ("train --device cuda", "device: 'cuda'"),
    "tf32 on a cpu": ("train --device cpu --precision tf32", "precision: 'tf32'"),
    "store is a file": ("train {small} --store {places}/file", "a directory"),
    "store below a file": ("train {small} --store {places}/file/below", "a directory"),
    "store is foreign": ("train {small} --store {places}/foreign", "thesis.tex"),
    "store marker is garbage": ("train {small} --store {places}/garbage", "format"),
    "store of a newer format": ("train {small} --store {places}/newer", "99"),
    "store cannot be made": ("train {small} --store /proc/nowhere/store", "/proc/nowhere"),
    "no store to list": ("runs list --store {places}/absent", "absent"),
    "no store to verify": ("verify {places}/foreign", "foreign"),
    "no module": ("diagnose", "factory: '' is not allowed; allowed: package.module:name"),
    "no run": ("runs show", "run: '' is not allowed; allowed: its key"),
    "no shell": ("completion", "one of bash, zsh, fish ('recombine completion --help' says more)"),
    "unknown run": ("runs show 123xyz", "run: '123xyz'"),
    "unknown run to prune": ("runs prune zzz", "run: 'zzz'"),
    "export to a strange file": ("runs export {places}/table.xlsx", "table.xlsx"),
    "export into a foreign folder": ("runs export {places}/foreign", "to: '"),
    "unknown study": ("reproduce everything", "what: 'everything'"),
    "unknown preset": ("reproduce --preset huge", "preset: 'huge'"),
    "report into a file": ("reproduce --out {places}/file", "--out: "),
    "field in a part and as a flag": ("train --decoder cnn:width=8 --width 16",
                                      "--width: '16' is not allowed; allowed: one value: --decoder cnn:width=8"),
    "field by position and as a flag": ("train --decoder cnn:8 --decoder.width 8", "--decoder cnn:8 gives one too"),
    "one of several parts has it": ("train --decoder cnn:depth=2 --decoder mlp --depth 3", "--decoder cnn:depth=2"),
    "bound in a hold-out and as a flag": ("train --holdout center:2:5 --holdout.low 3", "--holdout center:2:5"),
    "samples twice": ("train --training draws:40 --samples 20", "--training draws:40"),
    "short and long name": ("train --width 8 --decoder.width 16", "--width is the same one"),
    "long and short name": ("train --training.samples 8 --samples=16", "--training.samples is the same one"),
    "switch on and off": ("train --isolated --no-isolated", "'--isolated --no-isolated'"),
    "preset field twice": ("reproduce --set size=8 --set size=14", "--set size=8 and --set size=14"),
    "preset field twice alike": ("reproduce --set size=8 --set size=8", "--set size=8 and --set size=8"),
    "seeds as a field and a flag": ("reproduce --set seeds=1 --seeds 2", "--set seeds=1 and --seeds 2"),
    "misspelt field of the preset": ("reproduce --set seeeds=1", "perhaps with seeds"),
    "no field of the preset": ("reproduce --set all", "NAME=VALUE with NAME one of seeds"),
    "field of the preset without a value": ("reproduce --set seeds", "allowed: seeds=VALUE"),
    "field of the preset": ("reproduce --set size=-1", "--set size: '-1'"),
    "number of seeds": ("reproduce --seeds many", "--seeds: 'many' is not allowed; allowed: a whole number"),
    "no value": ("train --sigma", "--sigma: ''"),
    "condition on no column": ("runs list --where colour>3", "colour"),
    "condition that is none": ("runs list --where decoder=cnn", "an expression such as"),
    "store of a module": ("diagnose a:b --grid x=0:3 --store {places}", "--store: "),
    "document that is absent": ("bench --write {places}/missing.md", "--write: "),
    "document without marks": ("bench --write {places}/foreign/thesis.tex", "a file with marked blocks"),
    "document with other marks": ("bench --out {places}/now.json --write {places}/marked.md", "machine_now"),
    "record that is no file": ("bench --out {places}", "--out: "),
    "record below a file": ("bench --out {places}/file/x.json", "--out: "),
    "record that is none": ("bench --out {places}/file", "a record written by"),
    "measuring and not": ("bench --from {places}/file --steps 3", "--steps: '3'"),
    "export to a folder of that name": ("runs export {places}/folder.csv", "a file, not a directory"),
    "seeds a fraction": ("reproduce --seeds 2.5", "--seeds: '2.5' is not allowed; allowed: a whole number"),
    "processes a fraction": ("reproduce --processes 1.5", "--processes: '1.5'"),
    "processes a fraction, to train": ("train --processes=1.5", "--processes: '1.5'"),
    "members a fraction": ("train --members 2.5", "--members: '2.5' is not allowed; allowed: a whole number"),
    "steps a fraction": ("bench --steps 2.7", "--steps: '2.7'"),
    "steps negative": ("bench --steps -2", "--steps: '-2'"),
    "memory a fraction": ("diagnose a:b --grid x=0:3 --memory 1.5", "--memory: '1.5'"),
    "newest a fraction": ("runs list --newest 2.5", "--newest: '2.5'"),
    "digests for a store": ("verify {filled} --adopt", "a store has digests of its own"),
    "report into a store": ("reproduce c1 --out {filled}", "--out: "),
    "report into a store to be": ("reproduce c1 --store {places}/both --out {places}/both", "--out: "),
    "export onto itself": ("runs export {filled}", "another directory than the store's own"),
    "unknown claim": ("claims C99 --from {places}/absent", "claim: 'C99'"),
    "box outside, one of several": ("train --size 8 --holdout center:2:4 --holdout center:6:22",
                                    "--holdout center:6:22: high: 22"),
    "switch that is neither": ("train --isolated=maybe", "--isolated: 'maybe' is not allowed; allowed: true or false"),
    "switch twice": ("train --isolated --isolated", "option: '--isolated --isolated'"),
    "options after two hyphens": ("train -- --size 8", "arguments: '-- --size'"),
    "short name without a value": ("train --width", "--width: ''"),
    "store without a name": ("train --store=", "--store: '' is not allowed; allowed: a path"),
    "export into a file": ("runs export {places}/file", "recombine: to: "),
    "record where no folder can be": ("bench --out /proc/z/x.json", "--out: '/proc/z/x.json'"),
    "report of no results": ("report {places}/absent", "recombine: folder: "),
    "field the task lacks": ("train --task rotation --sigma 2", "fields that task 'rotation' has: encoding"),
    "module that is absent": ("train --import nowhere", "--import: 'nowhere' is not allowed; allowed: a module"),
    "module that has mistakes": ("train --import wrong_parts", "SyntaxError"),
    "module that fails": ("runs list --import=failing_parts", "RuntimeError: two lines"),
    "module that exits": ("train --import {places}/leaving_parts.py", "SystemExit: 0"),
    "module of a taken name": ("train --import taken_parts", "encoding: 'bump'"),
    "module without a name": ("train --import", "--import: ''"),
}  # fmt: skip


def test_there_are_many_kinds():
    assert len(MISTAKES) >= 40


@pytest.mark.parametrize("kind", [kind for kind in MISTAKES if kind != "cuda absent" or not torch.cuda.is_available()])
def test_mistake_is_one_line_and_changes_nothing(kind, filled, places, monkeypatch, capsys):
    line, expected = MISTAKES[kind]
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
    assert "allowed" in err
    assert "Traceback" not in err
    assert out == ""
    assert (snapshot(filled), snapshot(places)) == before


def test_a_store_that_the_environment_names(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("RECOMBINE_STORE", str(tmp_path / "nowhere"))
    for words, field in (([], "RECOMBINE_STORE"), (["--store", str(tmp_path / "absent")], "--store")):
        run("runs", "list", *words)
        assert capsys.readouterr().err.startswith(f"recombine: {field}: ")


@pytest.mark.parametrize("word", ["5..2", "-1"])
def test_seeds_that_are_none_are_not_too_many(word, capsys):
    run("train", "--seeds", word)
    assert capsys.readouterr().err.endswith("whole numbers from 0 on\n")


def test_full_disk_is_one_line_and_loses_nothing(filled, tmp_path):
    """The kernel refuses to let files grow past a limit, in a process of its own: a disk that is really full."""
    kept = {name: digest for name, digest in snapshot(filled).items() if name.startswith("runs/")}
    done = subprocess.run(
        [sys.executable, "-m", "recombine", "train", "--store", str(filled), "--device", "cpu",
         "--size", "8", "--decoder", "mlp", "--width", "64", "--steps", "3", "--samples", "20"],
        capture_output=True, text=True, timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000)),
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert "room left" in done.stderr
    assert {n: d for n, d in snapshot(filled).items() if n.startswith("runs/")} == kept
    assert all(not problems for _, problems in Store(filled).verify())
    assert os.listdir(filled / "tmp") == []
