"""From a file to a trained network and its diagnosis, at the command line and in Python."""

import gc
import json

import pytest
import torch

import recombine as rc
from recombine.diagnosis.data import part_of
from recombine.errors import InvalidValue
from recombine.store import Store
from tests.command import captured, run
from tests.data.files import factors, images, picture_folder, sprites_npz

TRAIN = "--decoder mlp:4:1 --training draws:20 --steps 5 --batch 4 --device cpu"


def test_train_and_diagnose_a_file(tmp_path, store_path, capsys):
    file = sprites_npz(tmp_path / "a.npz")
    assert run("train", "--data", file, "--categorical", "shape", "--holdout", "corner", *TRAIN.split()) == 0
    (stored,) = Store(store_path)
    task = stored.spec.task
    assert task == rc.ArrayTask(data=file, categorical=("shape",), holdout="corner", training="draws:20")
    assert str(file) not in stored.spec.to_json(), "a path is no part of a key"
    shown = captured(["runs", "show", stored.key], capsys)
    assert f"--data {task.data}" in shown.out
    diagnosed = captured(["diagnose", f"run:{stored.key}"], capsys)
    assert diagnosed.code == 0
    assert "ood_error" in diagnosed.out


def test_the_same_data_elsewhere_are_the_same_run(tmp_path, store_path, capsys):
    for name, packed in (("a.npz", True), ("b.npz", False)):
        file = sprites_npz(tmp_path / name, packed=packed)
        assert run("train", "--data", file, *TRAIN.split()) == 0
    assert len(list(Store(store_path))) == 1


def test_a_stored_run_whose_data_are_gone_says_so(tmp_path, store_path, capsys):
    file = sprites_npz(tmp_path / "a.npz")
    assert run("train", "--data", file, *TRAIN.split()) == 0
    file.unlink()
    gc.collect()
    (stored,) = Store(store_path)
    capsys.readouterr()
    assert run("runs", "list") == 0
    ended = captured(["diagnose", f"run:{stored.key}"], capsys)
    assert ended.code == 2
    assert "data that were opened here before" in ended.err


def test_a_folder_of_pictures_trains(tmp_path, store_path):
    folder = picture_folder(tmp_path / "pictures")
    data = rc.ArrayTask(data=folder, holdout="none")
    spec = rc.RunSpec(task=data, decoder=rc.MLP(width=4, depth=1), recipe=rc.Recipe(steps=4, batch=4))
    (one,) = rc.train(spec, tmp_path / "one", device="cpu")
    assert one.result["scores"]["id_mse"] == pytest.approx(one.arrays()["error"].mean(), rel=1e-5)


@pytest.mark.parametrize("words", ["--encoding bump --holdout center", "--encoding onehot", "--points 12"])
def test_diagnose_a_module_of_ones_own(words, tmp_path, capsys):
    """Codes of 2 + 3 + 4 neurons, or three values, to images of 36 pixels."""
    file = sprites_npz(tmp_path / "a.npz")
    module = tmp_path / "mine.py"
    module.write_text(f"from torch import nn\nmade = nn.Linear({9 if 'encoding' in words else 3}, 36)\n")
    ended = captured(["diagnose", f"{module}:made", "--data", file, *words.split()], capsys)
    assert ended.code == 0, ended.err
    assert "id_error" in ended.out
    assert ("12 of 24 combinations" in ended.out) == ("points" in words)


def task(**fields):
    return rc.ArrayTask(images(), factors(), **fields)


def test_the_whole_of_a_small_grid_is_measured():
    part = part_of(task(holdout="center"), None, None, 1024)
    assert part.grid == task().grid
    assert part.encode == task().encoding
    assert torch.equal(part.held_out, task(holdout="center").held_out)
    assert part.targets.shape == (24, 36)
    assert part.notes == []


def test_a_part_of_a_large_grid_has_the_codes_and_images_of_the_whole():
    whole = task(holdout="center")
    part = part_of(whole, None, None, 12)
    assert part.grid.shape == (2, 3, 2)
    at = torch.tensor([[s, x, y] for s in (0, 1) for x in (0, 1, 2) for y in (0.0, 1.0)], dtype=torch.float64)
    assert torch.equal(part.grid.points, at)
    assert torch.allclose(part.encode(part.grid.points), whole.codes(at))
    assert torch.equal(part.targets, whole.render(at).flatten(1))
    assert torch.equal(part.held_out, whole.held_out[whole.grid.nearest(at)])
    between = torch.tensor([[0.0, 1.0, 0.25]], dtype=torch.float64)
    assert torch.allclose(part.encode(between), whole.codes(between)), "codes between values, for derivatives"


def test_values_with_gaps_are_left_out():
    rows = [row for row in range(24) if row != 5]  # heart, x = 1, y = 0.5
    columns = {name: [column[row] for row in rows] for name, column in factors().items()}
    partial = rc.ArrayTask(images()[rows], columns, holdout="none")
    part = part_of(partial, None, None, 1024)
    kept = [row for row in range(24) if factors()["y"][row] != 0.5]
    assert part.grid.shape == (2, 3, 3), "the value whose share of gaps is largest: y = 0.5"
    assert torch.equal(part.targets, torch.from_numpy(images()[kept]).float().flatten(1) / 255)
    assert torch.allclose(part.encode(part.grid.points), task().codes(task().grid.points[kept]))
    assert part.notes == ["data: 18 of 23 combinations were measured (shape 2, x 3, y 3)"]


def test_data_without_any_grid_are_refused():
    diagonal = rc.ArrayTask(images()[:4], {"x": [0, 1, 2, 3], "y": [0, 1, 2, 3]}, holdout="none")
    with pytest.raises(InvalidValue, match="all combinations of at least two values"):
        part_of(diagonal, None, None, 1024)


def test_diagnose_in_python_takes_data_or_a_grid(tmp_path):
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(9, 36))
    data = task(encoding="bump", holdout="center")
    result = rc.diagnose(module, data=data)
    by_hand = rc.diagnose(
        module, data.grid, encode="bump", holdout=data.held_out, targets=data.render(data.grid.points).flatten(1),
        background=data.background,
    )  # fmt: skip
    assert json.dumps(result.to_dict(), default=str) == json.dumps(by_hand.to_dict(), default=str)
    for fields in ({"grid": "x=0:2"}, {"targets": torch.zeros(24, 36)}):
        with pytest.raises(InvalidValue, match="nothing beside data"):
            rc.diagnose(module, data=data, **fields)
    with pytest.raises(InvalidValue, match="grid: None"):
        rc.diagnose(module)
