"""The array task: grids of any kind, and the same training from memory, from a window and in any ensemble."""

import sys

import numpy as np
import pytest
import torch

import recombine as rc
from recombine.data import factor_of
from recombine.data.images import FilePixels
from recombine.errors import InvalidValue
from recombine.tasks import array as array_task
from recombine.training import Ensemble, Evaluator, evaluate, fit, scores, standard_errors, tables
from tests.data.files import factors, images, sprites_npz

CPU = torch.device("cpu")


def task(**fields):
    return rc.ArrayTask(images(), factors(), **fields)


def shuffled(rows):
    return rc.ArrayTask(images()[rows], {name: [column[row] for row in rows] for name, column in factors().items()})


def test_levels_and_positions():
    whole = task()
    assert whole.levels == {"shape": ("heart", "square"), "x": (0.0, 1.0, 2.0), "y": (0.0, 0.5, 1.0, 1.5)}
    assert whole.grid.factors[2] == rc.Factor("y", 0.0, 1.5, 4), "evenly spaced numbers keep their values"
    assert whole.grid.factors[0] == rc.Factor("shape", 0, 1, 2, "category")
    assert str(whole.encoding) == "mixed:shape=onehot:x=bump:y=bump"
    assert str(task(angular=("x",)).encoding) == "mixed:shape=onehot:x=circular:y=bump"
    assert task(encoding="bump").encoding == rc.Bump()


@pytest.mark.parametrize(
    ("values", "form", "factor", "levels"),
    [
        ([3.0, 1.0, 2.0], "number", ("f", 1.0, 3.0, 3), (1.0, 2.0, 3.0)),
        ([1.0, 4.0, 2.0], "number", ("f", 1.0, 4.0, 3, "number", (1.0, 2.0, 4.0)), (1.0, 2.0, 4.0)),
        ([10.0, 20.0, 30.0], "category", ("f", 0, 2, 3, "category"), (10.0, 20.0, 30.0)),
        ([0.0, 1.5, 3.0], "angle", ("f", 0.0, 3.0, 3, "angle", None, 6.28319), (0.0, 1.5, 3.0)),
        ([0.0, np.pi, 2 * np.pi], "angle", ("f", 0.0, 2 * np.pi, 3, "angle", None, 2 * np.pi), None),
        ([1.0, 5.0, 2.0], "angle", ("f", 1.0, 5.0, 3, "angle", (1.0, 2.0, 5.0), 6.28319), (1.0, 2.0, 5.0)),
        (["b", "a"], "number", ("f", 0, 1, 2, "category"), ("a", "b")),
        ([0.1, 0.2, np.float32(0.3)], "number", ("f", 0.1, float(np.float32(0.3)), 3), None),
    ],
    ids=["even", "uneven", "category", "angle", "a whole turn", "uneven angle", "text", "single precision"],
)
def test_factor_of_a_column(values, form, factor, levels):
    made = factor_of("f", np.array(values), form, turn=6.28319)
    assert made.factor == rc.Factor(*factor)
    assert made.values == (tuple(np.unique(np.array(values)).tolist()) if levels is None else levels)
    assert [made.values[k] for k in made.positions] == np.array(values).tolist()


def test_the_ends_of_a_whole_turn_have_one_code():
    data = rc.ArrayTask(images()[:5], {"a": [0, 1, 2, 3, 4]}, angular=("a",), turn=4, holdout="none")
    first, *_, last = data.codes(data.grid.points)
    assert torch.allclose(first, last)


def test_missing_combinations_are_neither_kept_nor_held_out():
    rows = [row for row in range(24) if row not in (3, 17)]
    partial = shuffled(rows).replace(holdout="center")
    whole = task(holdout="center")
    assert int(partial.present.sum()) == 22
    assert torch.equal(partial.held_out, whole.held_out & partial.present)
    each = partial.replace(training="each").training_values(0)
    assert len(each) == 22 - int(partial.held_out.sum())
    at = {tuple(values) for values in each.tolist()}
    assert tuple(whole.grid.points[3].tolist()) not in at
    with pytest.raises(InvalidValue, match="in the data"):
        partial.render(whole.grid.points[3:4])
    evaluation = evaluate(partial, lambda codes: torch.zeros(len(codes), 6, 6), CPU)
    assert torch.equal(evaluation["point"], torch.nonzero(partial.present).flatten())
    assert torch.equal(evaluation["held_out"], partial.held_out[partial.present])
    assert evaluation["weight"].eq(1).all()
    expected = partial.render(whole.grid.points[partial.held_out]).square().mean()
    assert scores(evaluation)["ood_mse"] == pytest.approx(expected.item(), rel=1e-6)
    assert standard_errors(evaluation)["ood_mse"] == 0
    summary = partial.holdout_summary
    assert (summary.kept, summary.held_out, summary.absent) == (len(each), int(partial.held_out.sum()), 2)
    assert ", 2 absent; every value is seen" in str(summary)


def test_a_value_whose_present_combinations_are_all_held_out_is_unseen():
    heart = [row for row in range(24) if factors()["shape"][row] == "heart" or row in (22, 23)]
    with pytest.raises(InvalidValue, match=r"this removes shape=square"):
        shuffled(heart).replace(holdout=rc.Mask(points=((1, 2, 2), (1, 2, 3))))


def test_absent_combinations_are_never_drawn():
    gaps = (3, 9, 17)
    partial = shuffled([row for row in range(24) if row not in gaps]).replace(holdout="center")
    held_out = int(partial.held_out.sum())
    for seed in range(20):
        evaluation = evaluate(partial, lambda codes: torch.zeros(len(codes), 6, 6), CPU, points=6, seed=seed)
        points = evaluation["point"]
        assert len(points) == len(set(points.tolist()) - {*gaps}) == 6
        assert int(evaluation["held_out"].sum()) == 3
        drawn = partial.render(partial.grid.rows(points[evaluation["held_out"]])).square().mean()
        assert scores(evaluation)["ood_mse"] == pytest.approx(drawn.item(), rel=1e-6)
        for region, population in ((evaluation["held_out"], held_out), (~evaluation["held_out"], 21 - held_out)):
            assert evaluation["weight"][region].sum().item() == pytest.approx(population)


@pytest.mark.parametrize("channels", [0, 3])
def test_isolated_examples_are_means_over_images_that_may_be_trained_on(channels):
    rows = [row for row in range(24) if row not in (3, 17)]
    columns = {name: [column[row] for row in rows] for name, column in factors().items()}
    data = rc.ArrayTask(images(channels)[rows], columns, holdout="corner", isolated=True, training="each")
    usable = data.present & ~data.held_out
    alone = data.isolated_values()
    assert len(alone) == 2 + 3 + 4
    for values, image in zip(alone, data.examples(alone).targets, strict=True):
        (axis,) = torch.nonzero(~values.isnan()).flatten().tolist()
        points = data.grid.points[usable & (data.grid.points[:, axis] == values[axis])]
        assert torch.allclose(image, data.render(points).mean(dim=0), atol=1e-6)


def test_a_mean_is_read_once(monkeypatch):
    data = task(isolated=True, holdout="none")
    alone = data.isolated_values()
    first = data.examples(alone).targets
    reads, take = [], data.source.pixels.take
    monkeypatch.setattr(data.source.pixels, "take", lambda rows: reads.extend(rows) or take(rows))
    assert torch.equal(data.examples(alone[[3, 0]]).targets, first[[3, 0]])
    assert reads == []
    monkeypatch.setattr(array_task, "KEPT_MEANS", 0)
    unkept = data.replace(training="each")
    assert torch.equal(unkept.examples(alone).targets, first)
    assert unkept.means == {}


def test_blank_is_the_mean_image():
    assert torch.allclose(task().blank, torch.from_numpy(images()).float().mean(dim=0) / 255)
    assert torch.allclose(task(direction="encode").blank, task().codes(task().grid.points).mean(dim=0).float())


def specs(data, seeds=3):
    spec = rc.RunSpec(
        task=data.replace(training="draws:40"),
        decoder=rc.MLP(width=8, depth=2),
        recipe=rc.Recipe(batch=5, steps=21),
    )
    return spec.seeds(range(seeds))


def trained(members):
    ensemble = Ensemble(members, CPU)
    state = ensemble.initial()
    for _ in fit(ensemble, state):
        pass
    return ensemble, state


@pytest.mark.parametrize("window", [1, 4000], ids=["a step at a time", "some steps"])
def test_a_window_trains_to_the_same_bits(window, tmp_path, monkeypatch):
    data = rc.ArrayTask(data=sprites_npz(tmp_path / "a.npz", packed=False))
    whole, expected = trained(specs(data))
    assert isinstance(whole.table, tables.Resident)
    monkeypatch.setattr(tables, "RESIDENT_BYTES", 0)
    monkeypatch.setitem(tables.WINDOW_BYTES, "cpu", window)
    streamed, state = trained(specs(data))
    assert len(streamed.examples.inputs) == 15 * streamed.table.longest_span
    assert torch.equal(state.weights, expected.weights)
    _, one = trained(specs(data)[1])
    assert torch.equal(one.weights[0], expected.weights[1])


def test_members_share_one_read(monkeypatch):
    """Three members that want the same rows: each row of the data is read once for the window."""
    monkeypatch.setattr(tables, "RESIDENT_BYTES", 0)
    ensemble = Ensemble(specs(task()), CPU)
    counts = []
    take = ensemble.specs[0].task.source.pixels.take
    monkeypatch.setattr(
        ensemble.specs[0].task.source.pixels, "take", lambda rows: counts.append(len(rows)) or take(rows)
    )
    rows = torch.tensor([0, 1, 2, 2, 1]).expand(4, 3, 5)
    examples, places = ensemble.table._read(rows)
    assert counts == [3]
    assert torch.equal(
        ensemble.table.distinct[0].task.examples(ensemble.table.distinct[0].values[:3]).targets, examples.targets
    )
    assert torch.equal(places, rows)


def test_only_a_window_of_large_data_is_on_the_device(tmp_path, monkeypatch):
    """What training and evaluation keep does not grow with the file."""
    monkeypatch.setattr(tables, "RESIDENT_BYTES", 0)
    monkeypatch.setattr(sys.modules["recombine.training.evaluate"], "KEPT_BYTES", {"cpu": 0})
    monkeypatch.setitem(tables.WINDOW_BYTES, "cpu", 3000)
    data = rc.ArrayTask(data=sprites_npz(tmp_path / "a.npz", packed=False), holdout="none", training="each")
    ensemble = Ensemble(specs(data, 1), CPU)
    assert isinstance(data.source.pixels, FilePixels)
    assert sum(part.nbytes for part in ensemble.examples) <= 3000
    evaluator = Evaluator(data, CPU, chunk=4)
    assert evaluator._kept is None
    assert [len(targets) for _, targets, _ in evaluator.chunks()] == [4] * 6


@pytest.mark.parametrize("value", [-1.0, 0.5])
def test_there_are_no_images_between_the_values_nor_beyond(value):
    columns = {"x": [0, 0, 1, 1], "y": [0, 1, 0, 1]}
    task = rc.ArrayTask(np.zeros((4, 6, 6), dtype=np.uint8), columns, holdout="none")
    with pytest.raises(InvalidValue, match="values in the data"):
        task.render(torch.tensor([[value, 0.0]], dtype=torch.float64))
