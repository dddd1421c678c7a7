"""Colour through decoders, training and evaluation, and any number of factors."""

import math

import pytest
import torch

from recombine.decoders import DECODERS, LowRankEmbedding
from recombine.metrics import contrast, extreme_pixel
from recombine.specs import Recipe, RunSpec
from recombine.training import evaluate, scores
from tests.coloured import ALL, COLUMNS, ROWS, ColouredBumps
from tests.small import small_decoder, small_penalties

CPU = torch.device("cpu")


def colour_spec(name, **task):
    decoder = small_decoder(name)
    fields = {"direction": decoder.direction, "training": "draws:30", "holdout": "none", **task}
    return RunSpec(
        task=ColouredBumps(**fields),
        decoder=decoder,
        recipe=Recipe(steps=3, batch=6),
        penalties=small_penalties(decoder),
    )


@pytest.mark.parametrize("name", DECODERS)
def test_every_decoder_has_the_shape_of_the_task(name):
    spec = colour_spec(name)
    inputs, targets = spec.task.examples(spec.task.grid.points[:5])
    outputs = spec.module()(inputs)
    assert outputs.shape == targets.shape
    if spec.task.direction == "encode":
        assert inputs.shape[1:] == (3, ROWS, COLUMNS)
        reddened = inputs.clone()
        reddened[:, 0] += 1
        assert not torch.equal(spec.module()(reddened), outputs)
    else:
        assert targets.shape[1:] == (3, ROWS, COLUMNS)
        assert not torch.allclose(outputs[:, 0], outputs[:, 1])


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("grey", [True, False])
def test_low_rank_embeddings_render_each_factor_in_colour(count, grey):
    task = ColouredBumps(factors=ALL[:count], grey=grey, thin=True, holdout="none", encoding="onehot")
    module = LowRankEmbedding(task.code_sizes, task.image_shape, rank=2)
    channels = 1 if grey else 3
    values = task.grid.points[-1:]
    rendered = module(task.codes(values).float())
    assert rendered.shape == (1, count * channels, ROWS, COLUMNS)
    for k, images in enumerate(module.images()):
        own = rendered[0, k * channels : (k + 1) * channels]
        torch.testing.assert_close(own, images[-1].reshape(own.shape))
        assert torch.linalg.matrix_rank(own).max() <= 2
    absent = values.clone()
    absent[:, 0] = torch.nan
    assert not module(task.codes(absent).float())[:, :channels].any()


def test_penalties_of_colour_are_sums_over_channels():
    colour = LowRankEmbedding((4, 5), (3, ROWS, COLUMNS), rank=2)
    entropy, variance = 0.0, 0.0
    for channel in range(3):
        grey = LowRankEmbedding((4, 5), (ROWS, COLUMNS), rank=2)
        for kind in ("rows", "columns", "strengths"):
            for k in range(2):
                getattr(grey, kind)[k].data = getattr(colour, kind)[3 * k + channel].data
        entropy, variance = entropy + grey.entropy().item(), variance + grey.variance().item()
    assert colour.entropy().item() == pytest.approx(entropy, rel=1e-5)
    assert colour.variance().item() == pytest.approx(variance, rel=1e-5)


@pytest.mark.parametrize("polarity", ["bright", "dark"])
@pytest.mark.parametrize("hue", [0, 1, 2])
def test_the_extreme_pixel_finds_a_bump_of_any_colour(polarity, hue):
    task = ColouredBumps(polarity=polarity, holdout="none")
    image = task.render(torch.tensor([[5.0, 2.0, float(hue)]]))
    assert extreme_pixel(contrast(image, task.background)).tolist() == [[5, 2]]


@pytest.mark.parametrize("polarity", ["bright", "dark"])
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("direction", ["decode", "encode"])
def test_scores_of_perfect_and_blank_outputs(polarity, count, direction):
    task = ColouredBumps(
        factors=ALL[:count],
        thin=count > 2,
        polarity=polarity,
        direction=direction,
        holdout="corner:2" if count > 1 else "none",
    )
    targets = iter(task.examples(task.grid.points).targets.split(32))
    perfect = scores(evaluate(task, lambda inputs: next(targets), CPU))
    blank = scores(evaluate(task, lambda inputs: task.blank.expand(len(inputs), *task.blank.shape), CPU))
    assert perfect["id_mse"] == 0
    assert blank["id_over_blank"] == pytest.approx(1)
    assert math.isnan(perfect["id_accuracy"]) if count == 1 else perfect["id_accuracy"] == 1
    assert math.isnan(perfect["ood_mse"]) == (count == 1)
