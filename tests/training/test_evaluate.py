"""Errors and hits over the grid: known results."""

import sys

import pytest
import torch

from recombine.errors import InvalidValue
from recombine.metrics import extreme_pixel, hits, squared_error
from recombine.metrics.sampling import quantile, stratified_sample
from recombine.tasks import BumpTask
from recombine.training import Evaluator, evaluate, scores, standard_errors

CPU = torch.device("cpu")


def rendering(task, values):
    """A network that returns, whatever its inputs, the targets of `values`, in grid order."""
    targets = iter(task.examples(values).targets.split(32))
    return lambda inputs: next(targets)


@pytest.mark.parametrize("polarity", ["bright", "dark"])
@pytest.mark.parametrize("direction", ["decode", "encode"])
def test_perfect_outputs(polarity, direction):
    task = BumpTask(size=12, polarity=polarity, direction=direction)
    result = scores(evaluate(task, rendering(task, task.grid.points), CPU))
    assert result == {
        "id_mse": 0, "id_over_blank": 0, "id_accuracy": 1, "ood_mse": 0, "ood_over_blank": 0, "ood_accuracy": 1
    }  # fmt: skip


@pytest.mark.parametrize("encoding", ["bump", "rate", "onehot"])
def test_blank_outputs(encoding):
    for direction in ("decode", "encode"):
        task = BumpTask(size=12, encoding=encoding, direction=direction)
        result = scores(evaluate(task, lambda inputs, t=task: t.blank.expand(len(inputs), *t.blank.shape), CPU))
        assert result["id_over_blank"] == pytest.approx(1)
        assert result["ood_over_blank"] == pytest.approx(1)
        assert result["ood_accuracy"] < 0.2


@pytest.mark.parametrize(("off", "expected"), [(1, True), (2, False)])
@pytest.mark.parametrize("direction", ["decode", "encode"])
def test_one_pixel_off_is_a_hit_and_two_are_not(off, expected, direction):
    task = BumpTask(size=12, direction=direction)
    moved = task.grid.points + torch.tensor([off, 0])
    away = (moved[:, 0] <= 11).numpy()
    result = evaluate(task, rendering(task, moved.clamp(max=11)), CPU)["hit"].numpy()
    assert (result[away] == expected).all()


def test_metrics_against_loops():
    generator = torch.Generator().manual_seed(0)
    outputs, targets = torch.rand(2, 3, 4, 5, generator=generator), torch.rand(3, 4, 5, generator=generator)
    error = squared_error(outputs, targets)
    for member in range(2):
        for point in range(3):
            total = sum((outputs[member, point, y, x] - targets[point, y, x]) ** 2 for y in range(4) for x in range(5))
            assert error[member, point].item() == pytest.approx(total.item() / 20)
    pixel = extreme_pixel(outputs)
    for member in range(2):
        for point in range(3):
            column, row = pixel[member, point].tolist()
            assert outputs[member, point, row, column] == outputs[member, point].max()
    assert hits(torch.tensor([[3, 4], [3, 6]]), torch.tensor([[4.0, 5.0], [4.0, 4.0]])).tolist() == [True, False]


def test_tasks_that_look_alike_share_an_evaluator():
    one = BumpTask(size=9)
    other, unlike = one.replace(holdout="none", training="draws:5"), one.replace(sigma=2.0)
    assert one.rendering_key == other.rendering_key != unlike.rendering_key
    evaluator = Evaluator(one, CPU, chunk=7)
    for task in (one, other):
        noisy = task.examples(task.grid.points).targets + torch.linspace(0, 1, 81)[:, None, None]
        shared = evaluator.of(batched(noisy, 7), task.held_out)
        alone = evaluate(task, batched(noisy, 81), CPU, chunk=81)
        for name, values in alone.items():
            assert torch.equal(shared[name], values), name


def batched(outputs, chunk):
    parts = iter(outputs.split(chunk))
    return lambda inputs: next(parts)


def noisy(task):
    """A network whose errors differ from point to point, as a function of its inputs."""

    def forward(inputs):
        wrong = torch.sin(37 * inputs @ torch.arange(inputs.shape[1], dtype=inputs.dtype)) ** 2
        return torch.zeros(len(inputs), *task.image_shape) + wrong[:, None, None]

    return forward


DRAWS = 120
"""Of samples: that fewer than 90 % of them cover the truth has a chance below 1 % where 95 % do."""


def test_sampled_scores_are_within_their_stated_error():
    task = BumpTask(size=16)
    evaluation = evaluate(task, noisy(task), CPU, 256)
    whole, inside = scores(evaluation), {}
    assert set(standard_errors(evaluation).values()) == {0.0}
    for seed in range(DRAWS):
        point = stratified_sample(task.held_out, 80, seed)
        drawn = {name: values[point] for name, values in evaluation.items()}
        drawn["weight"] = torch.where(drawn["held_out"], task.held_out.sum() / 40.0, (~task.held_out).sum() / 40.0)
        estimate, errors = scores(drawn), standard_errors(drawn)
        for name in whole:
            within = abs(estimate[name] - whole[name]) <= quantile(39) * errors[name]
            inside[name] = inside.get(name, 0) + within
    assert min(count for name, count in inside.items() if not name.endswith("accuracy")) >= 0.9 * DRAWS


def test_a_sample_says_which_points_it_has_and_what_they_stand_for():
    task = BumpTask(size=16)
    drawn = evaluate(task, noisy(task), CPU, 256, points=80, seed=3)
    assert torch.equal(drawn["point"], stratified_sample(task.held_out, 80, 3))
    assert torch.equal(drawn["held_out"], task.held_out[drawn["point"]])
    whole = evaluate(task, noisy(task), CPU, 256)
    for name in ("error", "blank", "hit"):
        torch.testing.assert_close(drawn[name], whole[name][drawn["point"]])
    assert drawn["weight"].sum().item() == pytest.approx(task.grid.size)
    assert min(standard_errors(drawn)[name] for name in ("id_mse", "ood_mse", "id_over_blank", "ood_over_blank")) > 0


def test_examples_that_fill_memory_are_rendered_in_chunks(monkeypatch):
    task = BumpTask(size=10)
    kept = evaluate(task, noisy(task), CPU)
    monkeypatch.setattr(sys.modules["recombine.training.evaluate"], "KEPT_BYTES", {"cpu": 1000})
    largest, render = [], BumpTask.render
    monkeypatch.setattr(BumpTask, "render", lambda self, values: (largest.append(len(values)), render(self, values))[1])
    streamed = evaluate(task, noisy(task), CPU)
    assert max(largest) == 32
    assert all(torch.equal(streamed[name], kept[name]) for name in kept)


def test_a_sample_is_drawn_for_one_hold_out():
    task = BumpTask(size=10)
    with pytest.raises(InvalidValue, match="held_out"):
        Evaluator(task, CPU, points=30).of(noisy(task), ~task.held_out)
