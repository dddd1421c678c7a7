"""Families of kernels: planted ones win, a loop gives the same numbers, and shifts keep noise from winning."""

import itertools
import math

import numpy as np
import pytest
import torch

from recombine.errors import InvalidValue
from recombine.metrics import block_contrast, distance_inside, family_kernels, gram_matrix, kernel_families
from recombine.metrics.gram_matrices import FAMILIES, FAMILY_WIDTHS
from recombine.tasks import BumpTask
from tests.small import noise

TASK = BumpTask(size=14)
SHAPE, HELD_OUT = TASK.grid.shape, TASK.held_out
POINTS = TASK.grid.points
INSIDE = distance_inside(HELD_OUT, SHAPE) >= 3


def planted(family, width, profile="gaussian"):
    """A Gram matrix that is a kernel of the family."""
    candidate = FAMILY_WIDTHS.index(width) + (profile == "exponential") * len(FAMILY_WIDTHS)
    return family_kernels(family, POINTS, POINTS)[candidate]


@pytest.mark.parametrize(("rows", "standardised"), [(INSIDE, True), (None, False)])
@pytest.mark.parametrize(
    ("family", "width", "profile"),
    [
        ("or", 1.41, "exponential"), ("product", 4.0, "exponential"), ("radial", 4.0, "exponential"),
        ("sum", 2.83, "gaussian"),
    ],
)  # fmt: skip
def test_planted_families_win(family, width, profile, rows, standardised):
    gram = planted(family, width, profile)
    clean = kernel_families(gram, SHAPE, HELD_OUT, rows=rows, standardised=standardised)
    assert clean.agreement[family].item() == pytest.approx(1)
    assert clean.width[family].tolist() == [width, width]
    rivals = [value for name, value in clean.agreement.items() if name != family]
    assert max(rivals) < 1 - 1e-5
    noisy = gram + 0.02 * gram[HELD_OUT][:, ~HELD_OUT].std() * noise(2, *gram.shape)
    scores = kernel_families(noisy, SHAPE, HELD_OUT, rows=rows, standardised=standardised).agreement
    assert (scores[family] >= torch.stack(list(scores.values())).amax(dim=0)).all()


def test_binary_kernel_is_told_from_smooth_ones_in_much_noise():
    gram = torch.stack([planted("or", 0.5), planted("radial", 4.0, "exponential")])
    spread = gram[:, HELD_OUT][:, :, ~HELD_OUT].std(dim=(-2, -1), keepdim=True)
    found = kernel_families(gram + spread * noise(2, *gram.shape[1:]), SHAPE, HELD_OUT, rows=INSIDE)
    assert found.margin[0] > 0.3
    assert found.margin[1] < -0.05
    assert found.p_value[0].item() == pytest.approx(1 / len(POINTS))


def test_coinciding_families_agree_equally():
    found = kernel_families(planted("product", 4.0), SHAPE, HELD_OUT)
    assert found.agreement["product"].item() == pytest.approx(1)
    assert found.agreement["radial"].item() == pytest.approx(1)
    assert found.margin < -0.01
    sharp = kernel_families(planted("or", 0.5), SHAPE, HELD_OUT, rows=INSIDE)
    assert sharp.agreement["sum"].item() == pytest.approx(1, abs=1e-5)
    assert sharp.margin > 0.3


def slow_kernel(family, first, second, profile, width):
    distances = [abs(a - b) for a, b in zip(first, second, strict=True)]

    def alike(distance):
        return math.exp(-(distance**2) / (2 * width**2) if profile == "gaussian" else -distance / width)

    if family == "radial":
        return alike(math.sqrt(sum(d * d for d in distances)))
    values = [alike(d) for d in distances]
    if family == "or":
        return 1 - math.prod(1 - value for value in values)
    return math.prod(values) if family == "product" else sum(values)


@pytest.mark.parametrize(("width", "least"), [(1.41, 0.06), (4.0, 0.1)])
@pytest.mark.parametrize(("family", "rival"), [("or", "sum"), ("sum", "or")])
def test_or_and_sum_are_told_apart_among_near_held_out_points(family, rival, width, least):
    gram = planted(family, width)
    clean = kernel_families(gram, SHAPE, HELD_OUT, rows=INSIDE, near=3)
    assert clean.agreement[family].item() == pytest.approx(1)
    assert clean.agreement[family] - clean.agreement[rival] > least
    assert clean.p_value.isnan().all()
    noisy = gram + 0.2 * gram[HELD_OUT][:, HELD_OUT].std() * noise(20, len(POINTS), len(POINTS))
    found = kernel_families(noisy, SHAPE, HELD_OUT, rows=INSIDE, near=3).agreement
    assert (found[family] > found[rival]).all()
    assert (found[family] - found[rival]).mean() > 0.7 * least


def slow_agreement(gram, held_out, shape, family, widths, shift, standardised, near=None):
    points = list(itertools.product(*(range(count) for count in shape)))
    rows = [p for p, held in enumerate(held_out) if held]
    kept = [p for p, held in enumerate(held_out) if held == (near is not None)]
    halves = [[p for p in kept if sum(v > (n - 1) / 2 for v, n in zip(points[p], shape, strict=True)) % 2 == half]
              for half in range(2)]  # fmt: skip

    def entries(half, value):
        matrix = np.array([[value(row, column) for column in halves[half]] for row in rows])
        if standardised:
            spread = matrix.std(axis=1, keepdims=True)
            matrix = np.where(spread > 1e-9, matrix - matrix.mean(axis=1, keepdims=True), 0) / np.maximum(spread, 1e-9)
        steps = [
            [max(abs(a - b) for a, b in zip(points[r], points[c], strict=True)) for c in halves[half]] for r in rows
        ]
        return matrix.ravel() if near is None else matrix[[[0 < own <= near for own in line] for line in steps]]

    def correlation(half, candidate):
        def theory(row, column):
            label = [(v + s) % n for v, s, n in zip(points[column], shift, shape, strict=True)]
            return slow_kernel(family, points[row], label, *candidate)

        return np.corrcoef(entries(half, lambda r, c: gram[r, c]), entries(half, theory))[0, 1]

    candidates = list(itertools.product(("gaussian", "exponential"), widths))
    return np.mean([correlation(half, max(candidates, key=lambda c: correlation(1 - half, c))) for half in range(2)])


@pytest.mark.parametrize("standardised", [False, True])
@pytest.mark.parametrize("shape", [(4, 4), (3, 3, 2)])
def test_agreement_against_loops(shape, standardised):
    count, widths = math.prod(shape), (0.8, 2.0)
    held_out = torch.rand(count, generator=torch.Generator().manual_seed(4)) < 0.3
    grams = noise(2, count, count)
    shifts = list(itertools.product(*(range(n) for n in shape)))[1:]
    fast = kernel_families(grams, shape, held_out, widths=widths, standardised=standardised)
    for member in range(2):
        arguments = (grams[member].numpy(), held_out.tolist(), shape)
        for family in FAMILIES:
            slow = slow_agreement(*arguments, family, widths, (0,) * len(shape), standardised)
            assert fast.agreement[family][member].item() == pytest.approx(slow)
            if not standardised:
                beside = kernel_families(grams, shape, ~held_out, near=2, widths=widths).agreement[family][member]
                slow = slow_agreement(
                    grams[member].numpy(), (~held_out).tolist(), shape, family, widths, (0,) * len(shape), False, near=2
                )
                assert beside.item() == pytest.approx(slow)
        observed = fast.agreement["or"][member].item()
        null = [slow_agreement(*arguments, "or", widths, shift, standardised) for shift in shifts]
        p_value = (1 + sum(value >= observed - 1e-9 for value in null)) / (1 + len(null))
        assert fast.p_value[member].item() == pytest.approx(p_value)


def test_shifts_keep_smooth_noise_from_winning():
    """Outputs that vary smoothly for no reason: p below 0.1 about as seldom as it should be."""
    smooth = family_kernels("product", POINTS, POINTS, [2.0])[0]
    gram = smooth @ noise(40, len(POINTS), len(POINTS)) @ smooth
    found = kernel_families(gram, SHAPE, HELD_OUT, rows=INSIDE)
    assert (found.p_value <= 0.1).double().mean() <= 0.25
    assert found.p_value.mean() > 0.35


def test_members_and_wrong_arguments():
    grams = noise(2, 3, len(POINTS), len(POINTS))
    together = kernel_families(grams, SHAPE, HELD_OUT)
    alone = kernel_families(grams[1, 2], SHAPE, HELD_OUT)
    assert together.p_value.shape == (2, 3)
    for family in FAMILIES:
        assert together.width[family].shape == (2, 3, 2)
        assert together.agreement[family][1, 2].item() == pytest.approx(alone.agreement[family].item())
    flat = kernel_families(torch.ones(len(POINTS), len(POINTS)), SHAPE, HELD_OUT)
    assert flat.agreement["or"].item() == 0
    assert flat.p_value.item() == 1
    with pytest.raises(InvalidValue, match="rows"):
        kernel_families(grams, SHAPE, HELD_OUT, rows=~HELD_OUT)
    with pytest.raises(InvalidValue, match="standardised"):
        kernel_families(grams, SHAPE, HELD_OUT, near=3, standardised=True)
    without = kernel_families(grams, SHAPE, HELD_OUT, shifts=False)
    assert without.p_value.isnan().all()
    torch.testing.assert_close(without.agreement, together.agreement)
    with pytest.raises(InvalidValue, match="both halves"):
        kernel_families(grams, SHAPE, (POINTS > 6).any(dim=-1))


# -- overlap and contrast ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [0.1, 0.35, 0.7])
def test_overlap_over_thresholds_against_a_loop(threshold):
    outputs = torch.rand(4, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = gram_matrix(outputs, "overlap", threshold=threshold)
    for a, b in itertools.product(range(4), range(4)):
        both = sum(bool(p > threshold and q > threshold) for p, q in zip(outputs[a], outputs[b], strict=True)) / 9
        assert found[a, b].item() == pytest.approx(both)
    assert torch.allclose(gram_matrix(1 - outputs, "overlap", dark=True, threshold=threshold), found)


def test_contrast_of_a_block_against_a_loop():
    grams = noise(2, len(POINTS), len(POINTS))
    found = block_contrast(grams, POINTS, HELD_OUT)
    for member in range(2):
        with_one, without = [], []
        points, gram = POINTS.tolist(), grams[member].numpy()
        for row, column in itertools.product(HELD_OUT.nonzero().flatten().tolist(), range(len(points))):
            if not HELD_OUT[column]:
                shared = points[row][0] == points[column][0] or points[row][1] == points[column][1]
                (with_one if shared else without).append(gram[row, column])
        slow = (np.mean(with_one) - np.mean(without)) / np.std(with_one + without, ddof=1)
        assert found[member].item() == pytest.approx(slow)
