"""The data: known answers, and every training-set rule."""

import copy
import math
import pickle
import time
from functools import cache

import numpy as np
import pytest
import torch

from recombine.errors import InvalidValue
from recombine.holdouts import Mask
from recombine.metrics import extreme_pixel, squared_error
from recombine.specs import RunSpec
from recombine.tasks import TASKS, ArrayTask, BallsTask, BumpsTask, BumpTask, RotationTask, SpriteTask
from recombine.tasks.base import WHICH
from recombine.training.evaluate import evaluate


def rows(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_bump_is_drawn_pixel_by_pixel():
    image = BumpTask(size=9, sigma=1.5).render(rows([2.0, 6.25]))[0]
    for y in range(9):
        for x in range(9):
            assert image[y, x].item() == pytest.approx(math.exp(-((x - 2) ** 2 + (y - 6.25) ** 2) / (2 * 1.5**2)))


def test_x_is_the_column_and_dark_is_one_minus_bright():
    bright, dark = BumpTask(), BumpTask(polarity="dark")
    at = rows([5.0, 20.0])
    assert extreme_pixel(bright.render(at)).tolist() == [[5, 20]]
    assert extreme_pixel(dark.render(at), "dark").tolist() == [[5, 20]]
    assert torch.equal(dark.render(at), 1 - bright.render(at))


def test_blank_scores_pi_sigma_squared_over_n_squared():
    for sigma, polarity in ((1.0, "bright"), (1.5, "dark")):
        task = BumpTask(sigma=sigma, polarity=polarity)
        image = task.render(rows([14.0, 14.0])).float()
        assert squared_error(task.blank[None], image).item() == pytest.approx(math.pi * sigma**2 / 28**2, rel=1e-3)


def test_stripes_are_one_dimensional_and_their_code_leaves_the_other_factor_out():
    task = BumpTask(size=10)
    vertical, horizontal = task.render(rows([3.0, torch.nan], [torch.nan, 7.0]))
    profile = torch.exp(-((torch.arange(10).double() - 3) ** 2) / 2)
    assert torch.equal(vertical, profile.expand(10, 10))
    assert torch.equal(horizontal, torch.exp(-((torch.arange(10).double() - 7) ** 2) / 2)[:, None].expand(10, 10))
    code = task.codes(rows([3.0, torch.nan]))[0]
    assert code[:10].max() == 1
    assert torch.equal(code[10:], torch.zeros(10, dtype=torch.float64))


def test_brightness_is_a_third_factor():
    task = BumpTask(size=6, brightness=4, holdout="none")
    assert task.grid.shape == (6, 6, 4)
    full, half = task.render(rows([2.0, 3.0, 1.0], [2.0, 3.0, 0.5]))
    assert torch.equal(half, full / 2)
    uniform = task.render(rows([torch.nan, torch.nan, 0.75]))[0]
    assert torch.equal(uniform, torch.full((6, 6), 0.75, dtype=torch.float64))


def test_pick_and_percent_draw_without_replacement():
    for training, count in (("pick:100", 100), ("percent:20", 99)):
        values = BumpTask(training=training).training_values(4)
        assert len(values) == len(torch.unique(values, dim=0)) == count


def test_draws_are_with_replacement_and_differ_by_seed():
    task = BumpTask()
    first, second = task.training_values(0), task.training_values(1)
    assert len(first) == 2000
    assert len(torch.unique(first, dim=0)) < 495
    assert not torch.equal(first, second)


def test_real_centres_lie_between_grid_points_and_outside_the_holdout():
    values = BumpTask(centers="real", training="draws:5000").training_values(0)
    assert (values != values.round()).any(dim=1).float().mean() > 0.99
    assert values.min() >= 0
    assert values.max() <= 27
    inside = ((values > 5.5) & (values < 22.5)).all(dim=1)
    assert not inside.any()
    assert ((values > 5.0) & (values < 23.0)).all(dim=1).any()  # the border is not wider than half a pixel


@pytest.mark.parametrize("training", ["pick:0", "pick:10", "pick:300"])
def test_stripes_come_with_any_number_of_bumps(training):
    values = BumpTask(isolated=True, training=training).training_values(0)
    absent = torch.isnan(values).any(dim=1)
    assert int(absent.sum()) == 56
    assert len(values) == 56 + int(training.split(":")[1])


@pytest.mark.parametrize(("share", "bumps"), [(0.9, 100), (0.5, 100), (0.1, 100), (0.5, 10), (0.25, 400)])
def test_mixing_reaches_its_share_and_drops_nothing(share, bumps):
    values = BumpTask(isolated=True, training=f"pick:{bumps}", mixing=share).training_values(0)
    absent = torch.isnan(values).any(dim=1)
    assert absent.double().mean().item() == pytest.approx(share, abs=0.01)
    assert len(torch.unique(values[~absent], dim=0)) == bumps
    assert len(torch.unique(values[absent].nan_to_num(-1), dim=0)) == 56


@pytest.mark.parametrize(
    "fields",
    [
        {"size": 1}, {"size": 10_000}, {"sigma": 0}, {"sigma": -1}, {"sigma": float("nan")}, {"polarity": "grey"},
        {"encoding": "braille"}, {"encoding": "bump:variance=0"}, {"training": "pick:496"}, {"training": "draws:0"},
        {"training": "percent:101"}, {"training": "pick:0"}, {"centers": "real", "encoding": "onehot"},
        {"centers": "real", "training": "each"}, {"isolated": True, "encoding": "rate"}, {"mixing": 0.5},
        {"isolated": True, "mixing": 1.0}, {"isolated": True, "mixing": 0.5, "training": "pick:0"},
        {"holdout": "center:0:27"}, {"holdout": "center:0:27", "allow_unseen": True},
        {"direction": "sideways"}, {"brightness": 0}, {"colour": "red"},
    ],
    ids=str,
)  # fmt: skip
def test_mistakes_are_refused(fields):
    with pytest.raises(InvalidValue):
        BumpTask(**fields)


@cache
def own_data(shift=0):
    """A task on a user's own images; it has to stay in use, or its data are no longer known."""
    images = torch.rand(12, 4, 4, generator=torch.Generator().manual_seed(shift))
    factors = {"x": [30 * (row // 4) for row in range(12)], "y": [1 + row % 4 for row in range(12)]}
    return ArrayTask(images, factors, holdout="none", training="draws:20")


BASES = {
    "balls": BallsTask(size=20, factors="x=3,y=3,x2=3,y2=2", holdout="none", training="draws:20"),
    "bumps": BumpsTask(size=8, factors="x=4,y=4,size=3", holdout="none", isolated=True, training="draws:20"),
    "sprites": SpriteTask(size=20, factors="x=4,y=4,scale=3,hue=2", holdout="none", training="draws:20"),
    "bump": BumpTask(size=8, brightness=2, holdout="none", isolated=True, training="draws:20"),
    "rotation": RotationTask(size=8, angles=12, holdout="none", training="draws:20"),
    "array": own_data(),
}
SHARED = {
    "encoding": "ramp", "holdout": "center", "training": "draws:9", "centers": "real", "region": "whole",
    "direction": "encode", "allow_unseen": True, "excluded": "random:fraction=0.1",
}  # fmt: skip
OTHERS = {
    "balls": {**SHARED, "size": 21, "factors": "x=3,y=3,x2=3,scale2=2", "fixed": "hue=120"},
    "bumps": {
        **SHARED, "isolated": False, "isolated_factors": ("x",), "isolated_together": 2, "mixing": 0.3, "size": 9,
        "sigma": 2.0, "polarity": "dark", "elongation": 2.0,
        "factors": "x=4,y=4,intensity=3", "fixed": "orientation=30",
    },
    "sprites": {
        **SHARED, "size": 21, "sprites": 2, "shapes": "disc", "colour": True, "factors": "x=4,y=4,hue=3",
        "fixed": "rotation=30", "class_boundaries": "scale=7",
    },
    "bump": {
        **SHARED, "isolated": False, "isolated_factors": ("x",), "isolated_together": 2, "mixing": 0.3, "size": 9,
        "sigma": 2.0, "polarity": "dark", "brightness": 3,
    },
    "rotation": {
        **SHARED, "holdout": RotationTask.gap(12), "excluded": RotationTask.gap(12), "allow_unseen": False, "size": 9,
        "angles": 24, "digit": 7,
        "digits": 2,
    },
    "array": {
        "encoding": "ramp", "holdout": "center", "training": "draws:9", "region": "whole", "direction": "encode",
        "allow_unseen": True, "excluded": "random:fraction=0.1", "data": own_data(shift=1).data,
        "categorical": ("y",), "angular": ("x",), "turn": 90.0,
        "bins": "x=1:61:3", "repeats": "mean",
    },
}  # fmt: skip
ALONE = {"isolated", "isolated_factors", "isolated_together", "mixing"}
NEVER = {
    "array": {"centers", *ALONE},
    "balls": ALONE,
    "bump": set(),
    "bumps": set(),
    "rotation": ALONE,
    "sprites": ALONE,
}
"""Fields that a task cannot have otherwise: a single factor is never isolated; nothing is between two images."""


@pytest.mark.parametrize("name", TASKS)
def test_looks_are_what_decides_the_examples_of_the_grid(name):
    task = BASES[name]
    assert {"kind", "blocks", *OTHERS[name]} | NEVER[name] == set(type(task).model_fields)
    for field, value in {**OTHERS[name], "blocks": (len(task.grid.shape),)}.items():
        other = task.replace(**{field: value})
        assert other != task, field
        assert (other.rendering_key == task.rendering_key) == (field in WHICH), field
        if field in WHICH:
            assert torch.equal(other.blank, task.blank)
            for one, two in zip(other.examples(other.grid.points), task.examples(task.grid.points), strict=True):
                assert torch.equal(one, two), field


COPIES = {
    "itself": lambda task: task,
    "copied": copy.deepcopy,
    "pickled": lambda task: pickle.loads(pickle.dumps(task)),
    "in a changed spec": lambda task: RunSpec(task=task).replace(seed=3).task,
    "changed before": lambda task: task.replace(sigma=2.0).replace(sigma=task.sigma),
}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("holdout", ["center:fraction=0.5", "corner", "cross", "L", "center:low=4"])
def test_bounds_that_were_not_given_follow_the_size(holdout, way):
    small, large = BumpTask(size=12, holdout=holdout), BumpTask(size=20, holdout=holdout)
    assert small.holdout != large.holdout
    task = COPIES[way](small)
    assert task.replace(size=20).holdout == large.holdout
    assert task.replace(size=20).digest == large.digest
    assert task.replace(size=20).replace(size=12).digest == small.digest
    assert task.replace(sigma=2.0).holdout == small.holdout


def test_the_gap_follows_the_number_of_angles():
    assert RotationTask().replace(angles=100).digest == RotationTask(angles=100).digest
    assert RotationTask().replace(digits=3).holdout == RotationTask(digits=3).holdout


def test_given_bounds_stay_and_are_checked():
    task = BumpTask(holdout="center:6:22")
    assert task.digest == BumpTask().digest, "a run's name says which bounds, not who wrote them"
    assert task.replace(size=56).holdout == task.holdout
    with pytest.raises(InvalidValue, match=r"holdout.high must be 0 to 19"):
        task.replace(size=20)
    mask = BumpTask(size=12, holdout=Mask(points=((5, 5),), shape=(12, 12)))
    assert mask.replace(sigma=2.0).holdout == mask.holdout
    with pytest.raises(InvalidValue, match=r"holdout\.shape"):
        mask.replace(size=20)
    assert mask.replace(size=20, holdout="center").holdout == BumpTask(size=20).holdout


def test_a_mixture_is_written_out_and_follows_the_factors():
    task = BumpTask(size=8, encoding="mixed:x=onehot")
    assert str(task.encoding) == "mixed:x=onehot:y=bump"
    three = task.replace(brightness=3, holdout="none")
    assert str(three.encoding) == "mixed:x=onehot:y=bump:brightness=bump"
    assert str(three.replace(brightness=1).encoding) == "mixed:x=onehot:y=bump"
    assert BumpTask(encoding="mixed").digest == BumpTask(encoding="bump").digest
    assert TASKS.parse(str(task)) == task == BumpTask.from_json(task.to_json())
    with pytest.raises(InvalidValue, match=r"encoding\.angle"):
        BumpTask(encoding="mixed:angle=polar")
    with pytest.raises(InvalidValue, match=r"encoding\.x"):
        task.replace(centers="real")


@pytest.mark.parametrize("holdout", ["center", "random"])
def test_a_million_combinations_are_never_enumerated(holdout):
    task = BumpTask(size=100, brightness=100, holdout=holdout, training="pick:50", direction="encode")
    started = time.perf_counter()
    task = task.replace(isolated=True)
    values = task.training_values(0)
    assert time.perf_counter() - started < 5  # a second, on a machine that does nothing else
    assert task.grid.size == 10**6
    assert not {"points", "indices"} & set(vars(task.grid))
    combined = values[~values.isnan().any(dim=1)]
    assert not task.held_out[task.grid.nearest(combined)].any()
    assert task.blank.shape == (300,)
    assert not {"points", "indices"} & set(vars(task.grid))


def test_excluded_combinations_are_neither_trained_on_nor_evaluated():
    task = BumpTask(size=8, holdout="corner:6", excluded="center:2:5", training="each")
    excluded = BumpTask(size=8, holdout="center:2:5").held_out
    assert (int(task.held_out.sum()), task.holdout_summary.absent, task.available) == (4, 16, 64 - 16 - 4)
    assert not (task.usable & (excluded | task.held_out)).any()
    evaluation = evaluate(task, lambda codes: torch.zeros(len(codes), 8, 8), torch.device("cpu"))
    assert set(evaluation["point"].tolist()) == set(torch.nonzero(~excluded).flatten().tolist())
    assert int(evaluation["held_out"].sum()) == 4
    assert task.replace(excluded="none") == BumpTask(size=8, holdout="corner:6", training="each")
    assert BumpTask(size=8, centers="real", excluded="center:2:5", holdout="none").training_values(0).shape == (2000, 2)


def test_excluded_images_of_a_user_count_as_absent():
    factors = {"a": [k % 4 for k in range(16)], "b": [k // 4 for k in range(16)]}
    task = ArrayTask(np.zeros((16, 4, 4), np.float32), factors, holdout="corner:3", excluded="mask:0,0;1,1")
    assert (int(task.present.sum()), task.available) == (14, 13)


def test_blocks_of_factors_have_one_part_of_a_decoder_each():
    task = BumpsTask(size=8, factors=("x=4", "y=4", "size=3"), blocks=(2, 1), holdout="none")
    assert task.block_sizes == (task.code_sizes[0] + task.code_sizes[1], task.code_sizes[2])
    spec = RunSpec(task=task, decoder="additive:base=(mlp:width=8:depth=1)")
    assert len(spec.module().stages["components"].decoders) == 2
    assert len(spec.replace(task=task.replace(blocks=None)).module().stages["components"].decoders) == 3
    with pytest.raises(InvalidValue, match="blocks"):
        task.replace(blocks=(2, 2))


def test_training_images_are_counted_once():
    drawn = BumpTask(size=8, training="draws:500", isolated=True)
    rows = {tuple(row) for row in drawn.training_values(3).nan_to_num(nan=-1).tolist()}
    assert drawn.training_images(3) == len(rows) < len(drawn.training_values(3))
    assert BumpTask(size=8, training="each", holdout="none").training_images(0) == 64
