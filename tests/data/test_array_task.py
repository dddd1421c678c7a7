"""The array task: grids of any kind, and the same training from memory, from a window and in any ensemble."""

import numpy as np
import pytest
import torch

import recombine as rc
from recombine.data import factor_of
from recombine.errors import InvalidValue
from recombine.tasks import array as array_task
from recombine.training import Ensemble, Evaluator, evaluate, fit, scores, tables
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
    assert whole.grid.factors[0] == rc.Factor("shape", 0, 1, 2)


@pytest.mark.parametrize(
    ("values", "form", "factor", "levels"),
    [
        ([3.0, 1.0, 2.0], "number", ("f", 1.0, 3.0, 3), (1.0, 2.0, 3.0)),
        ([1.0, 2.0, 4.0], "number", ("f", 0, 2, 3), (1.0, 2.0, 4.0)),
        ([10.0, 20.0, 30.0], "category", ("f", 0, 2, 3), (10.0, 20.0, 30.0)),
        ([0.0, np.pi / 2, np.pi], "angle", ("f", 0.0, 180.0, 3), (0.0, 90.0, 180.0)),
        (["b", "a"], "number", ("f", 0, 1, 2), ("a", "b")),
        ([0.1, 0.2, np.float32(0.3)], "number", ("f", 0.1, float(np.float32(0.3)), 3), None),
    ],
    ids=["even", "uneven", "category", "angle", "text", "single precision"],
)
def test_factor_of_a_column(values, form, factor, levels):
    made = factor_of("f", np.array(values), form, 2 * np.pi)
    assert made.factor == rc.Factor(*factor)
    assert levels is None or made.values == pytest.approx(levels) if form == "angle" else levels in (None, made.values)
    assert (
        [made.values[k] for k in made.positions]
        == pytest.approx(np.rad2deg(values).tolist() if form == "angle" else values)
        if not isinstance(values[0], str)
        else [made.values[k] for k in made.positions] == values
    )


def test_rows_in_any_order_are_the_same_examples():
    order = np.random.default_rng(1).permutation(24)
    one, other = task(), shuffled(order)
    assert one.grid == other.grid
    assert torch.equal(one.render(one.grid.points), other.render(one.grid.points))


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
    with pytest.raises(InvalidValue, match="that the data have"):
        partial.render(whole.grid.points[3:4])
    evaluation = evaluate(partial, lambda codes: torch.zeros(len(codes), 6, 6), CPU)
    assert torch.equal(evaluation["measured"], partial.present)
    assert torch.equal(evaluation["error"].isnan(), ~partial.present)
    expected = partial.render(whole.grid.points[partial.held_out]).square().mean()
    assert scores(evaluation)["ood_mse"] == pytest.approx(expected.item(), rel=1e-6)


def test_a_value_whose_present_combinations_are_all_held_out_is_unseen():
    heart = [row for row in range(24) if factors()["shape"][row] == "heart" or row in (22, 23)]
    with pytest.raises(InvalidValue, match=r"this removes shape=1"):
        shuffled(heart).replace(holdout=rc.Mask(points=((1, 2, 2), (1, 2, 3))))


def test_there_is_nothing_between_images():
    with pytest.raises(InvalidValue, match="nothing between images"):
        task().render(torch.tensor([[0.0, 0.5, 0.0]], dtype=torch.float64))


def test_large_grids_are_evaluated_at_a_sample(monkeypatch):
    monkeypatch.setattr(array_task, "EVALUATED", 3)
    whole = task(holdout="center")
    evaluation = evaluate(whole, lambda codes: torch.zeros(len(codes), 6, 6), CPU)
    assert int((evaluation["measured"] & whole.held_out).sum()) == 3
    assert int(evaluation["measured"].sum()) == 6
    assert torch.equal(whole.evaluated(), torch.nonzero(evaluation["measured"]).flatten())
    sampled = whole.render(whole.grid.points[evaluation["measured"] & whole.held_out]).square().mean()
    assert scores(evaluation)["ood_mse"] == pytest.approx(sampled.item(), rel=1e-6)


def test_blank_is_the_mean_image():
    assert torch.allclose(task().blank, torch.from_numpy(images()).float().mean(dim=0) / 255)
    assert torch.allclose(task(direction="encode").blank, task().codes(task().grid.points).mean(dim=0).float())


def test_directions_mirror_each_other():
    there, back = task().examples(task().grid.points), task(direction="encode").examples(task().grid.points)
    assert torch.equal(there.targets[:, None], back.inputs)
    assert torch.equal(there.inputs, back.targets)


def test_equal_tasks_are_equal_specs():
    assert task(categorical=("y", "x", "x", "shape")) == task(categorical=("x", "y"))
    assert task(categorical=("x",)) != task()


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


@pytest.mark.parametrize("window", [1, 4000, 10**6], ids=["a step at a time", "some steps", "all"])
def test_a_window_trains_to_the_same_bits(window, tmp_path, monkeypatch):
    data = rc.ArrayTask(data=sprites_npz(tmp_path / "a.npz", packed=False))
    whole, expected = trained(specs(data))
    assert not whole.table.streamed
    monkeypatch.setattr(tables, "RESIDENT_BYTES", 0)
    monkeypatch.setitem(tables.WINDOW_BYTES, "cpu", window)
    streamed, state = trained(specs(data))
    assert streamed.table.streamed
    assert streamed.table.capacity % 15 == 0
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
        ensemble.table.wanted[0].task.examples(ensemble.table.wanted[0].values[:3]).targets, examples.targets
    )
    assert torch.equal(places, rows)


def test_only_a_window_of_large_data_is_on_the_device(tmp_path, monkeypatch):
    """What training and evaluation keep does not grow with the file."""
    monkeypatch.setattr(tables, "RESIDENT_BYTES", 0)
    monkeypatch.setitem(tables.WINDOW_BYTES, "cpu", 3000)
    data = rc.ArrayTask(data=sprites_npz(tmp_path / "a.npz", packed=False), holdout="none", training="each")
    ensemble = Ensemble(specs(data, 1), CPU)
    assert data.source.pixels.in_file
    assert sum(part.nbytes for part in ensemble.examples) <= 3000
    evaluator = Evaluator(data, CPU, chunk=4)
    assert evaluator._kept is None
    assert [len(targets) for _, targets, _ in evaluator.chunks()] == [4] * 6


def test_a_user_error_while_reading_ahead_is_raised(monkeypatch):
    monkeypatch.setattr(tables, "RESIDENT_BYTES", 0)
    ensemble = Ensemble(specs(task()), CPU)
    monkeypatch.setattr(type(ensemble.table), "_read", lambda self, rows: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        for _ in fit(ensemble, ensemble.initial()):
            pass
