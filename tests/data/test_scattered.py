"""Labels as they are measured: binned, with several images of a combination, in any container."""

import numpy as np
import pandas
import pytest
import torch

import recombine as rc
from recombine.data import bins_text, parse_bins
from recombine.errors import InvalidValue
from recombine.factors import Factor
from recombine.tasks import array as array_task
from recombine.training import Ensemble, fit, tables
from tests.command import captured
from tests.data.files import labels as regular
from tests.data.files import sprites_npz

CPU = torch.device("cpu")
ROWS = 300


def labels():
    rng = np.random.default_rng(1)
    return {
        "x": rng.uniform(0, 4, ROWS),
        "angle": rng.uniform(0, 360, ROWS),
        "shape": rng.choice(["disc", "ring"], ROWS),
    }


def images():
    return np.random.default_rng(2).integers(0, 256, (ROWS, 6, 6), dtype=np.uint8)


def scattered(repeats="mean", **fields):
    fields = {"bins": {"x": 4, "angle": 3}, "angular": ("angle",), "holdout": "none", **fields}
    return rc.ArrayTask(images(), labels(), repeats=repeats, **fields)


def members(task):
    """The rows of each combination, found one by one."""
    x, angle, shape = (np.asarray(column) for column in labels().values())
    edges = [np.linspace(column.min(), column.max(), n + 1)[1:-1] for column, n in ((x, 4), (angle, 3))]
    places = np.digitize(x, edges[0]), np.digitize(angle, edges[1]), (shape == "ring").astype(int)
    return [
        np.flatnonzero((places[0] == i) & (places[1] == j) & (places[2] == k))
        for i in range(4) for j in range(3) for k in range(2)
    ]  # fmt: skip


def test_bins_are_equal_intervals_and_means_are_of_all_their_images():
    task = scattered()
    expected = [images()[rows].mean(axis=0) / 255 for rows in members(task)]
    assert task.grid.shape == (4, 3, 2)
    assert torch.allclose(task.render(task.grid.points), torch.tensor(np.array(expected)).float(), atol=1e-6)
    x, coverage = labels()["x"], task.coverage
    assert task.grid.factors[0].spacing == pytest.approx((x.max() - x.min()) / 4)
    assert coverage.moved["x"] == pytest.approx((x.max() - x.min()) / 8, rel=0.05)
    counts = [len(rows) for rows in members(task)]
    assert (coverage.combinations, coverage.present) == (24, 24)
    assert (coverage.fewest, coverage.median, coverage.most) == (min(counts), np.median(counts), max(counts))


@pytest.mark.parametrize("bins", ["x=0:4:5,angle=0:270:4", {"x": range(5), "angle": np.arange(0, 360, 90)}], ids=str)
def test_values_move_to_the_nearest_of_a_grid_on_the_circle_for_angles(bins):
    task = scattered(bins=bins)
    nearest = np.round(labels()["angle"] / 90).astype(int) % 4  # 350 degrees are 0, not 270
    assert task.grid.factors[1].values.tolist() == [0, 90, 180, 270]
    assert task.coverage.moved["angle"] <= 45
    rows, owners = task.arrangement.rows_of(np.arange(task.grid.size))
    assert task.grid.positions(torch.from_numpy(owners))[:, 1].tolist() == nearest[rows].tolist()
    assert task == scattered(bins="angle=0:270:4,x=0:4:5"), "one spec for equal bins"


def test_bins_without_images_are_left_out():
    task = scattered(bins={"x": [0.0, 1.0, 3.0, 9.0], "angle": 1}, repeats="keep")
    assert task.grid.names == ("x", "shape")
    assert task.grid.factors[0] == Factor.of("x", [0.0, 1.0, 3.0])


def test_bins_have_one_text():
    assert bins_text({"y": np.linspace(0, 1, 5), "x": np.int64(10)}) == bins_text("x=10, y=0:1:5") == "x=10,y=0:1:5"
    assert parse_bins(bins_text({"x": [0, 0.1, 1]}))["x"].values.tolist() == [0, 0.1, 1]
    for bins in (10, "x", "x=", "x=0", "x=1,x=2", "x=a:b", {"x": [2, 1]}, "z=3", "shape=2"):
        with pytest.raises(InvalidValue):
            scattered(bins=bins)


def test_new_fields_change_a_key_only_once_they_are_used():
    plain = rc.ArrayTask(images()[:6], {"x": range(6), "y": [0] * 6}, holdout="none")
    assert not {"bins", "repeats"} & plain.model_dump().keys()
    tasks = [scattered(), scattered("keep"), scattered(bins="x=4,angle=4")]
    assert len({task.digest for task in tasks}) == 3
    for task in tasks:
        assert rc.ArrayTask.from_json(task.to_json()) == task == rc.TASKS.parse(str(task))


@pytest.mark.parametrize("count", [300, 5000, 100_000])
def test_messages_name_the_options(count):
    values = {name: np.random.default_rng(k).random(count) for k, name in enumerate("xy")}
    pixels = np.zeros((count, 2, 2), dtype=np.uint8)
    with pytest.raises(InvalidValue, match="bins"):
        rc.ArrayTask(pixels, values)
    with pytest.raises(InvalidValue, match="repeats is mean or keep"):
        rc.ArrayTask(pixels, values, bins="x=9,y=9")


def test_kept_images_are_examples_and_errors_are_against_their_mean():
    task = scattered("keep", holdout="x>3,shape==ring", training="each")
    held = [row for point, rows in enumerate(members(task)) if task.held_out[point] for row in rows]
    values = task.training_values(0)
    assert held
    assert sorted(values[:, -1].tolist()) == sorted({*range(ROWS)} - {*held})
    inputs, targets = task.examples(values)
    assert torch.equal(targets, torch.from_numpy(images()[values[:, -1].long().numpy()]).float() / 255)
    assert torch.equal(inputs, task.codes(values[:, :3]).float())
    assert torch.equal(task.render(task.grid.points), scattered().render(task.grid.points))
    for rule in ("draws:50", "pick:20", "percent:10"):
        drawn = task.replace(training=rule).training_values(1)
        assert not {*drawn[:, -1].tolist()} & {*held}
    alone = task.replace(isolated=True).training_values(0)
    assert torch.isnan(alone[: len(alone) - len(values), -1]).all()
    averaged = scattered(holdout="x>3,shape==ring", isolated=True)
    examples = task.replace(isolated=True).examples(alone[:9]).targets
    assert torch.allclose(examples, averaged.examples(averaged.isolated_values()).targets, atol=1e-6)


@pytest.mark.parametrize("repeats", ["mean", "keep"])
def test_repeats_stream_to_the_same_bits_and_no_more_than_a_part_is_read_at_once(repeats, tmp_path, monkeypatch):
    columns = labels()
    numbers = np.stack([columns["x"], columns["angle"], columns["shape"] == "ring"], axis=1).astype(float)
    names = np.array(["x", "angle", "shape"])
    file = sprites_npz(
        tmp_path / "a.npz",
        packed=False,
        imgs=images(),
        latents_values=numbers,
        latents_classes=None,
        factor_names=names,
    )
    task = rc.ArrayTask(data=file, bins="x=4,angle=3", repeats=repeats, holdout="none", training="draws:40")
    specs = rc.RunSpec(task=task, decoder="mlp:8:1", recipe=rc.Recipe(batch=5, steps=11)).seeds(range(2))

    def weights():
        ensemble = Ensemble(specs, CPU)
        state = ensemble.initial()
        for _ in fit(ensemble, state):
            pass
        return state.weights

    whole = weights()
    monkeypatch.setattr(array_task, "SUMMED", 7 * 36)
    monkeypatch.setattr(tables, "RESIDENT_BYTES", 0)
    monkeypatch.setitem(tables.WINDOW_BYTES, "cpu", 1)
    reads, take = [], task.source.pixels.take
    monkeypatch.setattr(task.source.pixels, "take", lambda rows: reads.append(len(rows)) or take(rows))
    assert torch.equal(weights(), whole)
    assert max(reads) <= (10 if repeats == "keep" else 7)


def test_a_data_frame_is_a_set_of_factors():
    frame = pandas.DataFrame({**labels(), "shape": pandas.Categorical(labels()["shape"])})
    fields = {"bins": "x=4,angle=3", "repeats": "mean"}
    assert rc.ArrayTask(images(), frame, **fields) == rc.ArrayTask(images(), labels(), **fields)
    with pytest.raises(InvalidValue, match="factor names"):
        rc.ArrayTask(images(), pandas.DataFrame(np.zeros((ROWS, 2))))


def test_a_path_an_array_task_and_the_command_line_measure_the_same(tmp_path, capsys):
    jitter = np.random.default_rng(0).uniform(0, 0.1, (24, 3))
    file = sprites_npz(tmp_path / "a.npz", latents_values=regular() + jitter)
    module = tmp_path / "mine.py"
    module.write_text("import torch\ntorch.manual_seed(0)\nmade = torch.nn.Linear(3, 36)\n")
    torch.manual_seed(0)
    decoder, reading = torch.nn.Linear(3, 36), {"bins": "shape=2,x=3,y=2", "repeats": "mean"}
    task = rc.ArrayTask(data=file, holdout="none", **reading)
    by_path = rc.diagnose(decoder, data=file, holdout="x>1.5,y>1", **reading)
    by_task = rc.diagnose(decoder, data=task, holdout="x>1.5,y>1", encode="raw")
    assert by_path.identical(by_task)
    assert by_path.notes[0] == f"data: {task.coverage}"
    assert by_path.notes[1].startswith("inputs: raw values of shape, x, y; encode= (--encoding)")
    with pytest.raises(InvalidValue, match=r"which encode= .* sets"):
        rc.diagnose(decoder, data=file, encode="bump", **reading)
    words = ["--bins", "shape=2,x=3,y=2", "--repeats", "mean", "--holdout", "x>1.5,y>1"]
    ended = captured(["diagnose", f"{module}:made", "--data", file, *words], capsys)
    assert ended.code == 0, ended.err
    shown = " ".join(ended.out.split())
    for line in by_path.summary_lines():
        assert " ".join(line.split()) in shown
    with pytest.raises(InvalidValue, match="bins"):
        rc.diagnose(decoder, data=task, bins="x=2")
    with pytest.raises(InvalidValue, match="repeats"):
        rc.diagnose(decoder, "x=0:3", repeats="mean")


def test_train_prints_the_coverage(tmp_path, store_path, capsys):
    file = sprites_npz(tmp_path / "a.npz")
    words = "--bins y=2 --repeats keep --holdout x>=1,y>1 --decoder mlp:4:1 --steps 3 --batch 4 --device cpu"
    ended = captured(["train", "--data", file, *words.split()], capsys)
    assert ended.code == 0, ended.err
    assert "y moved by at most 0.375" in " ".join(ended.out.split())
    assert "(x 1–2, y 1.125)" in " ".join(ended.out.split())
