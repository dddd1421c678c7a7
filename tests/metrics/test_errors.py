"""What outputs show: values, peaks and depth inside a hold-out, each against a slow search."""

import itertools

import numpy as np
import pytest
import torch

from recombine.metrics import distance_inside, interior, nearest_values, peak_scores, separate_peaks
from recombine.tasks import BumpsTask, BumpTask
from tests.small import noise

TASK = BumpTask(size=20)
POINTS, HELD_OUT = TASK.grid.points, TASK.held_out
INSIDE = interior(HELD_OUT, TASK.grid.shape)
TRUTH = TASK.render(POINTS)


def superposer():
    """Draws every third kept bump that shares a value, so that they are separate."""
    shares = (POINTS[:, None, :] == POINTS[None, :, :]).any(dim=-1) & ~HELD_OUT & (POINTS.sum(dim=-1) % 3 == 0)
    return (shares.double() @ TRUTH.flatten(1)).reshape(TRUTH.shape)


def at(image):
    return [tuple(place) for place in separate_peaks(image).nonzero().tolist()]


def bumps(*places, size=16):
    task = BumpTask(size=size)
    return task.render(torch.tensor(places, dtype=torch.float64)).sum(dim=0)


def test_peaks_known_answers():
    assert at(bumps((4, 7))) == [(7, 4)]
    assert at(bumps((4, 7), (8, 7))) == [(7, 4), (7, 8)]
    assert len(at(bumps((4, 7), (6, 7)))) == 1  # two pixels apart: one wide bump
    assert at(0.2 * bumps((4, 7))) == []
    assert at(bumps((0, 0), (15, 15))) == [(0, 0), (15, 15)]
    assert at(0.3 * bumps((4, 7)) + bumps((12, 3))) == [(3, 12), (7, 4)]
    assert at(torch.zeros(5, 5)) == []
    assert at(torch.full((5, 5), torch.nan)) == []
    assert separate_peaks(1 - bumps((4, 7)) - 1, dark=True).nonzero().tolist() == [[7, 4]]


def test_level_ground_and_noise_on_it_are_one_peak():
    assert at(torch.ones(6, 6)) == [(0, 0)]
    stripe = BumpTask(size=16).render(torch.tensor([[5.0, torch.nan]]))[0]
    assert at(stripe) == [(0, 5)]
    assert len(at(stripe + 0.01 * noise(16, 16))) == 1
    beaded = stripe * (1 + 0.4 * torch.cos(torch.arange(16) * torch.pi / 2))[:, None]
    assert at(beaded) == [(0, 5), (4, 5), (8, 5), (12, 5), (15, 5)]  # it rises again towards the last row


def test_shoulders_are_no_peaks():
    slope = torch.tensor([[0.0, 0.5, 1.0, 0.93, 0.97, 0.6, 0.0, 0.3, 0.1, 0.9]])
    assert at(slope) == [(0, 2), (0, 9)]  # 0.97 stands out by 0.04 only, 0.3 is beside 0.9


def test_faint_peaks_are_found_relative_to_the_own_maximum():
    faint = 0.15 * bumps((4, 7)) + 0.1 * bumps((12, 3))
    assert at(faint) == []
    assert separate_peaks(faint, own=True).nonzero().tolist() == [[3, 12], [7, 4]]
    assert separate_peaks(faint, own=True, threshold=0.7).nonzero().tolist() == [[7, 4]]
    assert torch.equal(separate_peaks(-faint, own=True, dark=True), separate_peaks(faint, own=True))
    for blank in (0.2 * faint, torch.zeros(5, 5), -torch.ones(5, 5), torch.full((5, 5), torch.nan)):
        assert not separate_peaks(blank, own=True).any()  # the first has a maximum of 0.03
    ridge = 0.3 * bumps((4, 7)) + 0.3 * bumps((7, 7))
    assert len(at(ridge)) == 1  # the dip between them is less than a tenth of a bump's height
    assert separate_peaks(ridge, own=True).sum() == 2  # and more than a tenth of their own


def slow_peaks(image, threshold=0.25, prominence=0.1, own=False):
    """Flood from each pixel over all that is not `prominence` below it; a peak meets nothing higher."""
    image = image.numpy() / (image.max().item() if own else 1)
    rows, columns = image.shape
    found = np.zeros((rows, columns), dtype=bool)
    for y in range(rows):
        for x in range(columns):
            top = image[y, x]
            window = image[max(y - 2, 0) : y + 3, max(x - 2, 0) : x + 3]
            seen, queue = {(y, x)}, [(y, x)]
            for v, u in queue:
                for b, a in ((v + i, u + j) for i in (-1, 0, 1) for j in (-1, 0, 1)):
                    inside = 0 <= b < rows and 0 <= a < columns
                    if inside and (b, a) not in seen and image[b, a] > top - prominence:
                        seen.add((b, a))
                        queue.append((b, a))
            found[y, x] = top > threshold and top == window.max() and max(image[place] for place in seen) == top
    return torch.from_numpy(found)


@pytest.mark.parametrize("roughness", [0.05, 0.3, 1.0])
def test_peaks_against_flooding(roughness):
    images = bumps((3, 3), (8, 3), (6, 9), size=12) + roughness * noise(2, 3, 12, 12)
    for own in (False, True):
        fast = separate_peaks(images, own=own)
        for first in range(2):
            for second in range(3):
                assert torch.equal(fast[first, second], slow_peaks(images[first, second], own=own))


@pytest.mark.parametrize("own", [False, True])
def test_scores_by_threshold_against_flooding(own):
    images, thresholds = bumps((3, 3), (8, 9), size=12) / 3 + 0.2 * noise(2, 2, 12, 12), (0.1, 0.25, 0.5)
    scores = peak_scores(images, torch.full((2, 2), 3.0), own=own, thresholds=thresholds)
    for member in range(2):
        for k, threshold in enumerate(thresholds):
            counts = [int(slow_peaks(image, threshold, own=own).sum()) for image in images[member]]
            assert scores["count"][member, k].item() == pytest.approx(np.mean(counts))
            assert scores["several"][member, k].item() == pytest.approx(np.mean([count > 1 for count in counts]))
    alone = peak_scores(images, torch.full((2, 2), 3.0), own=own)
    for name, value in alone.items():
        torch.testing.assert_close(value, scores[name][:, 1], equal_nan=True)


def test_composers_have_one_peak_and_superposers_many_that_are_aligned():
    scores = peak_scores(torch.stack([TRUTH, superposer()]), POINTS, chosen=INSIDE)
    assert scores["several"].tolist() == [0, 1]
    assert scores["count"][0].item() == 1
    assert scores["count"][1] > 2
    assert scores["centred"].tolist() == [1, 0]
    assert scores["aligned"].tolist() == [1, 1]
    assert torch.isnan(scores["away_aligned"][0])
    assert scores["away_aligned"][1].item() == 1
    assert (scores["aligned_chance"] < 0.7).all()
    assert scores["away_chance"][1] < 0.6


def test_scores_against_loops():
    signals, points = noise(2, 9, 10, 10) / 2, torch.rand(9, 2, generator=torch.Generator().manual_seed(1)) * 9
    scores = peak_scores(signals.float(), points)
    for member in range(2):
        tops = [[(x, y) for y, x in separate_peaks(image.float()).nonzero().tolist()] for image in signals[member]]
        counts = {True: [0, 0, 0, 0], False: [0, 0, 0, 0]}  # own or not: peaks, aligned, away, aligned and away
        for first in range(9):
            for second in range(9):
                for x, y in tops[first]:
                    column, row = abs(x - points[second, 0]) <= 1, abs(y - points[second, 1]) <= 1
                    count = counts[first == second]
                    for slot, true in enumerate((True, column or row, not (column and row), column != row)):
                        count[slot] += bool(true)
        for own, names in ((True, ("aligned", "away_aligned")), (False, ("aligned_chance", "away_chance"))):
            total, aligned, away, both = counts[own]
            assert scores[names[0]][member].item() == pytest.approx(aligned / total)
            assert scores[names[1]][member].item() == pytest.approx(both / away)
        assert scores["count"][member].item() == pytest.approx(sum(map(len, tops)) / 9)
        assert scores["several"][member].item() == pytest.approx(sum(len(places) >= 2 for places in tops) / 9)
        pairs = zip(tops, points.tolist(), strict=True)
        near = [any(max(abs(x - p), abs(y - q)) <= 1 for x, y in places) for places, (p, q) in pairs]
        assert scores["centred"][member].item() == pytest.approx(sum(near) / 9)


def test_images_in_parts(monkeypatch):
    signals = noise(3, 5, 8, 8)
    together = separate_peaks(signals)
    monkeypatch.setattr("recombine.metrics.errors.IMAGES_AT_ONCE", 4)
    assert torch.equal(together, separate_peaks(signals))


def searched(outputs, targets, shape):
    """Point by point, factor by factor, value by value."""
    indices = torch.cartesian_prod(*(torch.arange(count) for count in shape)).reshape(-1, len(shape))
    flat = {tuple(row.tolist()): number for number, row in enumerate(indices)}
    rows = []
    for output, index in zip(outputs, indices.tolist(), strict=True):
        found = []
        for factor, count in enumerate(shape):
            line = [targets[flat[(*index[:factor], value, *index[factor + 1 :])]] for value in range(count)]
            found.append(min(range(count), key=lambda value: (output - line[value]).square().sum().item()))
        rows.append(found)
    return torch.tensor(rows)


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 4), (2, 2, 3, 2)], ids=str)
def test_nearest_values_are_what_a_search_finds(shape):
    generator = torch.Generator().manual_seed(0)
    points = torch.Size(shape).numel()
    targets = torch.randn(points, 7, generator=generator)
    outputs = torch.randn(2, points, 7, generator=generator)
    found = nearest_values(outputs, targets, shape)
    assert torch.equal(found, torch.stack([searched(own, targets, shape) for own in outputs]))


def test_right_images_show_their_values():
    task = BumpsTask(size=8, factors="x=8,y=8,size=0.8..1.6..3,intensity=3", holdout="none")
    images = task.render(task.grid.points).flatten(1)
    assert torch.equal(nearest_values(images, images, task.grid.shape), task.grid.indices)
    assert not nearest_values(images * 0.01, images, task.grid.shape)[:, 3].any()


def slow_distance(held_out, shape):
    points = list(itertools.product(*(range(count) for count in shape)))
    kept = [point for point, held in zip(points, held_out.tolist(), strict=True) if not held]
    return [min(max(abs(a - b) for a, b in zip(point, other, strict=True)) for other in kept) for point in points]


@pytest.mark.parametrize("shape", [(17,), (6, 9), (4, 5, 6)])
@pytest.mark.parametrize("share", [0.3, 0.9, 0.98])
def test_distance_against_a_loop(shape, share):
    count = torch.Size(shape).numel()
    held_out = torch.rand(count, generator=torch.Generator().manual_seed(count)) < share
    held_out[0] = False
    assert distance_inside(held_out, shape).tolist() == slow_distance(held_out, shape)


def test_distance_known_answers():
    square = torch.zeros(9, 9, dtype=torch.bool)
    square[2:7, 2:7] = True
    distance = distance_inside(square.flatten(), (9, 9)).reshape(9, 9)
    assert distance[4].tolist() == [0, 0, 1, 2, 3, 2, 1, 0, 0]
    corner = torch.zeros(5, 5, dtype=torch.bool)
    corner[:3, :3] = True
    assert distance_inside(corner.flatten(), (5, 5))[0].item() == 3
    assert torch.isinf(distance_inside(torch.ones(6, dtype=torch.bool), (2, 3))).all()
    assert not distance_inside(torch.zeros(6, dtype=torch.bool), (2, 3)).any()


def test_interior_of_the_papers_holdout():
    task = BumpTask(size=28)
    inside = interior(task.held_out, task.grid.shape)
    assert int(inside.sum()) == 11**2
    assert task.grid.points[inside].min() == 9  # the box is 6 … 22, so 6, 7 and 8 lie between
    assert task.grid.points[inside].max() == 19


@pytest.mark.parametrize(("side", "count"), [(1, 1), (2, 4), (3, 9), (4, 4), (5, 9), (6, 4), (7, 9), (8, 4), (9, 9)])
def test_interior_of_small_holdouts_takes_a_smaller_margin(side, count):
    held_out = torch.zeros(13, 13, dtype=torch.bool)
    held_out[2 : 2 + side, 2 : 2 + side] = True
    inside = interior(held_out.flatten(), (13, 13))
    assert int(inside.sum()) == count
    assert not (inside & ~held_out.flatten()).any()
