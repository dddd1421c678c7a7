"""What outputs inside the gap are made of, and how rough stages are there: planted answers and slow oracles."""

import math

import numpy as np
import pytest
import torch
from scipy import linalg

from recombine.papers.forced_rendering.rotation_gap import (
    blend_less_truth,
    edge_images,
    edge_regression,
    edges_less_truth,
    first_digit,
    gap_angles,
    gap_edges,
    in_middle,
    linear_blend,
    stage_roughness,
)
from recombine.tasks.rotation import RotationTask

TASK = RotationTask(size=14, angles=120)
TASKS = [TASK, RotationTask(size=14, angles=120, digits=2)]
ANGLES = gap_angles(TASK)[in_middle(TASK)]
EDGES = edge_images(TASK)


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def truths(task=TASK, angles=ANGLES):
    return task.render(first_digit(task, angles))


# -- which angles ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("angles", [8, 72])
def test_middle_angles_are_a_quarter_away_from_the_edges(angles):
    task = RotationTask(angles=angles)
    low, high = gap_edges(task)
    quarter = (high - low) / 4
    middle = in_middle(task)
    expected = [low + quarter - 1e-6 <= a <= high - quarter + 1e-6 for a in gap_angles(task).tolist()]
    assert middle.tolist() == expected
    assert middle.any()
    assert in_middle(task, margin=0.0).all()


# -- regression ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS, ids=["one", "two"])
def test_networks_that_draw_truths_blends_or_nothing(task):
    right, blend = truths(task), linear_blend(task, ANGLES)
    drawn = torch.stack([right, blend, torch.zeros_like(right), (right + blend) / 2, 0.8 * right + 0.1 * blend])
    weights, explained = edge_regression(drawn, right, edge_images(task))
    expected = [-1, 1, 0, 0, -0.7]
    assert edges_less_truth(weights).tolist() == pytest.approx(expected, abs=1e-9)
    assert blend_less_truth(drawn, right, blend).tolist() == pytest.approx(expected, abs=1e-9)
    assert explained[[0, 1, 3, 4]].flatten().tolist() == pytest.approx([1] * 4 * len(ANGLES))
    assert explained[2].isnan().all()


def test_planted_weights_come_back_angle_by_angle():
    planted, right = random(4, len(ANGLES), 3), truths()
    images = torch.stack([right, *(edge.expand_as(right) for edge in EDGES)], dim=1)
    drawn = torch.einsum("mai,aiyx->mayx", planted, images)
    weights, _ = edge_regression(drawn, right, EDGES)
    torch.testing.assert_close(weights, planted)
    expected = (planted[..., 1] + planted[..., 2] - planted[..., 0]).mean(dim=1)
    torch.testing.assert_close(edges_less_truth(weights), expected)


def test_it_is_scipys_least_squares():
    drawn, right = random(len(ANGLES), 14, 14), truths()
    weights, explained = edge_regression(drawn, right, EDGES)
    for k in range(len(ANGLES)):
        images = torch.stack([right[k], *EDGES]).flatten(1).numpy().T
        solution, rest = linalg.lstsq(images, drawn[k].flatten().numpy())[:2]
        assert weights[k].tolist() == pytest.approx(solution)
        assert explained[k].item() == pytest.approx(1 - rest / drawn[k].square().sum().item())
    blends = linear_blend(TASK, ANGLES)
    shared = blend_less_truth(drawn, right, blends)
    images = torch.stack([right, blends]).flatten(1).numpy().T
    truth, blend = linalg.lstsq(images, drawn.flatten().numpy())[0]
    assert shared.item() == pytest.approx(blend - truth)


# -- roughness -------------------------------------------------------------------------------------------------

COUNT = 36
TURN = torch.arange(COUNT).double() * (2 * math.pi / COUNT)
CIRCLE = torch.stack([TURN.cos(), TURN.sin()], dim=1)
INSIDE = (torch.arange(COUNT) > 10) & (torch.arange(COUNT) < 18)


def slow(path, region):
    """Angle by angle."""
    second, first = [], []
    for k in np.flatnonzero(region):
        before, here, after = path[k - 1], path[k], path[(k + 1) % len(path)]
        second.append(np.linalg.norm(after - 2 * here + before))
        first.append(np.linalg.norm(after - before) / 2)
    return np.mean(second) / np.mean(first)


def test_roughness_is_what_a_loop_finds():
    paths = random(3, COUNT, 5)
    for k, path in enumerate(paths.numpy()):
        inside, outside = slow(path, INSIDE.numpy()), slow(path, ~INSIDE.numpy())
        assert stage_roughness(paths, INSIDE)[k].item() == pytest.approx(inside / outside)


def test_a_chord_across_the_gap_is_smoother_and_a_jump_rougher():
    """A stage that blends the gap's edges linearly, and one that stays at one edge and then jumps to the other."""
    chord, jump = CIRCLE.clone(), CIRCLE.clone()
    share = torch.linspace(0, 1, 9, dtype=torch.float64)[1:-1, None]
    chord[INSIDE] = (1 - share) * CIRCLE[10] + share * CIRCLE[18]
    jump[INSIDE] = torch.where(share < 0.5, CIRCLE[10], CIRCLE[18])
    smooth, rough = stage_roughness(torch.stack([chord, jump]), INSIDE).tolist()
    assert smooth == pytest.approx(0, abs=1e-9)
    assert rough > 5
