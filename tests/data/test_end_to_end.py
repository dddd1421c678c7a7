"""From a file to a trained network and its diagnosis, at the command line and in Python."""

import gc

import pytest
import torch

import recombine as rc
from recombine.errors import InvalidValue
from recombine.store import Store
from tests.command import captured, run
from tests.data.files import factors, images, mpi3d_npz, shapes_hdf5, sprites_npz

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
    assert "previously opened data" in ended.err


@pytest.mark.parametrize("words", ["--encoding bump --holdout center", ""])
def test_diagnose_a_module_of_ones_own(words, tmp_path, capsys):
    """Codes of 2 + 3 + 4 neurons, or three values, to images of 36 pixels."""
    file = sprites_npz(tmp_path / "a.npz")
    module = tmp_path / "mine.py"
    module.write_text(f"from torch import nn\nmade = nn.Linear({9 if 'encoding' in words else 3}, 36)\n")
    ended = captured(["diagnose", f"{module}:made", "--data", file, *words.split()], capsys)
    assert ended.code == 0, ended.err
    assert "id_error" in ended.out


def task(**fields):
    return rc.ArrayTask(images(), factors(), **fields)


def partial(gaps, **fields):
    """The task without some of its 24 images."""
    rows = [row for row in range(24) if row not in gaps]
    columns = {name: [column[row] for row in rows] for name, column in factors().items()}
    return rc.ArrayTask(images()[rows], columns, **fields)


class Right(torch.nn.Module):
    """Knows the images of some data by the position of their codes, and gives each with a known error."""

    def __init__(self, data, errors):
        super().__init__()
        present = data.present
        self.register_buffer("codes", data.codes(data.grid.points).float())
        self.register_buffer("outputs", torch.zeros(data.grid.size, 36))
        self.outputs[present] = data.render(data.grid.points[present]).flatten(1)
        self.outputs += errors.sqrt()[:, None]

    def forward(self, codes):
        return self.outputs[torch.cdist(codes, self.codes).argmin(dim=1)]


def test_errors_are_of_all_combinations_that_are_present():
    """Errors 0 … 23 in the grid's order, so that means say which combinations they are over."""
    data = partial((5, 9), holdout="corner", encoding="onehot")
    result = rc.diagnose(Right(data, torch.arange(24.0)), data=data)
    kept, held_out = (
        torch.nonzero(region).flatten().double() for region in (~data.held_out & data.present, data.held_out)
    )
    assert float(result["id_error"]) == pytest.approx(kept.mean().item(), rel=1e-4)
    assert float(result["ood_error"]) == pytest.approx(held_out.mean().item(), rel=1e-4)
    assert not [name for name in result if str(name).endswith("_se")], "nothing was drawn"
    summary = result.attrs["holdout"]
    assert summary.startswith(f"{len(kept)} combinations kept, {len(held_out)} held out (shape square, ")
    assert ", 2 absent;" in summary


def test_what_needs_a_grid_is_measured_where_there_are_no_gaps():
    data = partial((5,), holdout="none")  # heart, x = 1, y = 0.5
    result = rc.diagnose(Right(data, torch.arange(24.0)), data=data, geometry="differences")
    assert result["volume"].shape[1:] == (2, 3, 3), "less the value whose share of gaps is largest"
    assert result["y"].values.tolist() == [0.0, 1.0, 1.5]
    rows = [row for row in range(24) if factors()["y"][row] != 0.5]
    assert result["error"].values.ravel().tolist() == pytest.approx(rows, rel=1e-4, abs=1e-6)
    assert "2 × 3 × 3 of them that have no gaps" in result.notes[0]


def test_data_with_gaps_are_sampled_where_they_are_too_many():
    columns, rows, gap = 12, 12, 40
    points = [(x, y) for x in range(columns) for y in range(rows)]
    points.pop(gap)
    values = {"x": [x for x, _ in points], "y": [y for _, y in points]}
    pictures = torch.rand(len(points), 6, 6, generator=torch.Generator().manual_seed(0))
    data = rc.ArrayTask(pictures, values, holdout="center", encoding="onehot")
    result = rc.diagnose(Right(data, torch.ones(columns * rows)), data=data, points=60)
    assert float(result["ood_error"]) == pytest.approx(1, rel=1e-4)
    assert float(result["ood_error_se"]) == pytest.approx(0, abs=1e-4)
    assert result.attrs["points"] == 60
    assert "60 of them, drawn at random" in result.notes[0]
    assert gap // rows not in result["x"].values.tolist(), "the row of the gap is in no sub-grid"


def test_data_without_any_grid_are_refused():
    diagonal = rc.ArrayTask(images()[:4], {"x": [0, 1, 2, 3], "y": [0, 1, 2, 3]}, holdout="none")
    with pytest.raises(InvalidValue, match="all combinations of at least two values"):
        rc.diagnose(torch.nn.Linear(8, 36), data=diagonal)


@pytest.mark.parametrize(("layout", "decoder"), [("npz", "cnn:4"), ("h5", "low_rank:rank=2")])
def test_colour_from_a_file_to_a_diagnosis(layout, decoder, tmp_path, store_path, capsys):
    make = mpi3d_npz if layout == "npz" else shapes_hdf5
    file = make(tmp_path / f"a.{layout}")
    words = f"--categorical shape --holdout corner --decoder {decoder} --steps 3 --batch 4 --device cpu --isolated"
    ended = captured(["train", "--data", file, "--training", "draws:20", *words.split()], capsys)
    assert ended.code == 0, ended.err
    assert "combinations kept, " in ended.out
    (stored,) = Store(store_path)
    assert stored.spec.interface.image_shape == (3, 6, 6)
    assert stored.spec.task.code_sizes == (2, 3, 4)
    module = stored.module()
    result = rc.diagnose(module, data=stored.spec.task)
    task = stored.spec.task
    outputs = module(task.codes(task.grid.points).float())
    error = (outputs - task.render(task.grid.points)).square().flatten(1).mean(dim=1)
    assert float(result["ood_error"]) == pytest.approx(error[task.held_out].mean().item(), rel=1e-4)
    assert stored.result["scores"]["ood_mse"] == pytest.approx(float(result["ood_error"]), rel=1e-4)
