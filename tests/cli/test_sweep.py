"""`recombine train FILE`: what the file says is what is trained, and a mistake in it is one line."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from recombine.cli.sweep import read_sweep, specs_from
from recombine.cli.train import TrainingFlags
from recombine.errors import RunsFailed
from recombine.store import Store
from tests.command import captured

SMALL = 'size = 8\ndecoder = "mlp"\ndepth = 1\nsteps = 2\nsamples = 20\n'
FLAGS = {"size": ["8"], "decoder": ["mlp"], "decoder.depth": ["1"], "steps": ["2"], "training.samples": ["20"]}


@pytest.fixture
def written(tmp_path):
    def write(text, name="grid.toml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


SETTINGS = [field.name for field in fields(TrainingFlags)]


def specs(path):
    grids, _ = read_sweep(path, SETTINGS)
    return list(dict.fromkeys(spec for flags in grids.values() for spec in specs_from(flags)))


def test_a_grid_is_the_flags_of_train(written):
    path = written(f'[[grid]]\n{SMALL}width = [4, 8]\nencoding = ["bump", "rate"]\nseeds = "0..2"\n')
    flags = {**FLAGS, "decoder.width": ["4", "8"], "encoding": ["bump", "rate"], "seeds": ["0..2"]}
    assert specs(path) == specs_from(flags)
    assert len(specs(path)) == 12


def test_the_file_of_the_documents_can_be_read(written):
    text = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
    path = written(re.search(r"```toml\n(.*?)```", text, re.DOTALL)[1])
    assert len(specs(path)) == 32 * (2 * 3 * 2 + 1)
    assert read_sweep(path, SETTINGS)[1] == {"store": "/shared/runs"}


def test_grids_are_joined_and_a_run_is_counted_once(written):
    path = written(f"seeds = 2\n[[grid]]\n{SMALL}width = [4, 8]\n[[grid]]\n{SMALL}width = 8\nseeds = [1, 5]\n")
    expected = specs_from({**FLAGS, "decoder.width": ["4", "8"], "seeds": ["2"]})
    assert specs(path) == [*expected, *specs_from({**FLAGS, "decoder.width": ["8"], "seeds": ["5,"]})]


FIELDS = {"size": 8, "decoder": "mlp", "depth": [1, 2], "steps": 2, "samples": 20, "width": 4, "seeds": "0..1"}


@pytest.mark.parametrize(("ending", "write"), [("yaml", yaml.safe_dump), ("yml", yaml.safe_dump), ("json", json.dumps)])
def test_yaml_and_json_and_files_without_grids(written, ending, write):
    flags = {**FLAGS, "decoder.depth": ["1", "2"], "decoder.width": ["4"], "seeds": ["2"]}
    assert specs(written(write(FIELDS), f"sweep.{ending}")) == specs_from(flags)
    shared = {name: value for name, value in FIELDS.items() if name != "width"}
    several = write({**shared, "width": 16, "grid": [{"width": 4}, {"decoder": {"width": 4}}]})
    assert specs(written(several, f"sweep.{ending}")) == specs_from(flags)


@pytest.mark.parametrize("text", ["decoder.width = 4", '"decoder.width" = 4', "decoder = {width = 4}", "width = [4]"])
def test_fields_of_parts_have_their_usual_names(written, text):
    assert [spec.decoder.width for spec in specs(written(f"[grid]\n{text}\n"))] == [4]


def test_values_of_any_kind(written):
    path = written('[grid]\nsize = [8]\nweight-decay = [1e-3, 0.01]\ndecoder = "cnn:width=4"\n')
    assert [spec.recipe.weight_decay for spec in specs(path)] == [0.001, 0.01]


MISTAKES = {
    "widht": ("[grid]\nwidht = 4\n", "width"),
    "value": ("[grid]\nwidth = -4\n", "grid.toml: grid 1: decoder.width"),
    "second grid": ('[[grid]]\n[[grid]]\nencoding = "bmp"\n', "grid.toml: grid 2: encoding"),
    "empty list": ("[grid]\nwidth = []\n", "width"),
    "seeds": ('[grid]\nseeds = "5..x"\n', "seeds"),
    "two names": ('[grid]\nwidth = 4\n"decoder.width" = 8\n', "decoder.width"),
    "no table": ("grid = 3\n", "[[grid]]"),
    "setting": ("stroe = 'x'\n[grid]\n", "store"),
    "setting kind": ("processes = 'two'\n[grid]\n", "processes"),
    "too many": ("[grid]\nwidth = [1,2,3,4,5,6,7,8,9,10,11]\nseeds = 100000\n", "1100000 runs"),
    "no TOML": ("[grid\n", "a TOML file in UTF-8"),
    "deep": ("[grid]\nwidth = " + "[" * 100_000, "a TOML file in UTF-8"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line(written, name, store_path, capsys):
    text, expected = MISTAKES[name]
    outcome = captured(["train", written(text)], capsys)
    assert expected in outcome.err
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert outcome.err.startswith("recombine: ")
    assert not store_path.exists()


def test_a_dry_run_says_what_would_be_trained_and_writes_nothing(written, store_path, capsys):
    path = written(f'seeds = 3\ndevice = "cpu"\n[grid]\n{SMALL}width = [4, 8]\n')
    outcome = captured(["train", path, "--dry-run"], capsys)
    assert outcome.code == 0
    last = outcome.out.splitlines()[-1]
    assert last.startswith("6 runs in 2 groups that train together (2 of 3 runs): 0 in ")
    assert last.endswith(", 6 to train")
    assert not store_path.exists()


def test_what_is_in_the_store_is_not_trained_again(written, store_path, tmp_path, capsys):
    path = written(f'seeds = 2\nstore = "{tmp_path / "elsewhere"}"\ndevice = "cpu"\n[grid]\n{SMALL}width = 4\n')
    assert captured(["train", path], capsys).code == 0
    assert not store_path.exists()
    kept = Store(tmp_path / "elsewhere")
    stamps = {run.path.stat().st_mtime_ns for run in kept}
    outcome = captured(["train", path], capsys)
    assert "2 in " in outcome.out.splitlines()[0]
    assert {run.path.stat().st_mtime_ns for run in kept} == stamps


def test_flags_count_for_more_than_the_file(written, store_path, tmp_path, capsys):
    path = written(f'store = "{tmp_path / "elsewhere"}"\ndevice = "cuda"\n[grid]\n{SMALL}width = 4\n')
    flags = ["--store", store_path, "--device", "cpu", "--width", 6, "--seeds", 2, "--epochs", 1]
    assert captured(["train", path, *flags], capsys).code == 0
    specs = [run.spec for run in Store(store_path)]
    assert {(spec.decoder.width, spec.seed, spec.recipe.steps) for spec in specs} == {(6, 0, None), (6, 1, None)}
    assert captured(["train", path, *flags[:4], "--width", -1], capsys).err.startswith("recombine: decoder.width must")
    assert not (tmp_path / "elsewhere").exists()


def test_runs_that_failed_are_named_and_the_exit_code_is_one(written, store_path, monkeypatch, capsys):
    def train(*specs, **settings):
        raise RunsFailed({"0123456789": "RuntimeError: broken"}, 4)

    monkeypatch.setattr("recombine.cli.train.train_specs", train)
    outcome = captured(["train", written(f"device = 'cpu'\n[grid]\n{SMALL}width = 4\n")], capsys)
    assert outcome.code == 1
    assert "1 of 4 runs failed" in outcome.err
    assert "01234567 (RuntimeError: broken)" in outcome.err
