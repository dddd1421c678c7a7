"""Peaks of images: known answers, flooding done pixel by pixel, and the chance level by a loop over pairs."""

import numpy as np
import pytest
import torch

from recombine.metrics import interior, peak_scores, separate_peaks
from recombine.tasks import BumpTask
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


def slow_peaks(image, threshold=0.25, prominence=0.1):
    """Flood from each pixel over all that is not `prominence` below it; a peak meets nothing higher."""
    image = image.numpy()
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
    fast = separate_peaks(images)
    for first in range(2):
        for second in range(3):
            assert torch.equal(fast[first, second], slow_peaks(images[first, second]))


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
