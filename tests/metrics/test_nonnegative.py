"""Non-negative combinations: the solver against scipy's, exact superposers, composers, and noise."""

import numpy as np
import pytest
import torch
from scipy.optimize import nnls

import recombine.metrics.superposition as solver
from recombine.errors import InvalidValue
from recombine.metrics import interior, nonnegative_superposition, nonnegative_weights, stripe_superposition
from recombine.metrics.superposition import column_sets
from recombine.tasks import BumpTask
from tests.small import noise

TASK = BumpTask(size=14)
POINTS, HELD_OUT = TASK.grid.points, TASK.held_out
INSIDE = interior(HELD_OUT, TASK.grid.shape)
TRUTH = TASK.render(POINTS).flatten(1)
SHARES = (POINTS[:, None, :] == POINTS[None, :, :]).any(dim=-1) & ~HELD_OUT


def superposer(weights):
    """Draws kept bumps that share a value with the point, so weighted, at held-out points; elsewhere the bump."""
    drawn = TRUTH.clone()
    drawn[HELD_OUT] = ((weights * SHARES) @ TRUTH)[HELD_OUT]
    return drawn


def slow_explained(matrix, signal):
    """Fraction explained by scipy's solver; columns are rows of the matrix."""
    residual = nnls(matrix.T.numpy(), signal.numpy(), maxiter=100 * len(matrix))[1]
    return 1 - residual**2 / float(signal @ signal)


# -- solver --------------------------------------------------------------------------------------------------------


def fast_explained(columns, signals):
    gram, products = columns @ columns.mT, (columns @ signals[..., None])[..., 0]
    weights = nonnegative_weights(gram, products)
    assert (weights >= 0).all()
    residual = (signals - (weights[..., None, :] @ columns)[..., 0, :]).square().sum(dim=-1)
    return 1 - residual / signals.square().sum(dim=-1)


@pytest.mark.parametrize(
    "columns",
    [
        noise(20, 7, 30),
        noise(20, 60, 40).abs(),
        noise(20, 60, 40).abs() + 5,  # columns nearly parallel
        noise(20, 30, 12),  # more columns than pixels
        noise(20, 30, 3) @ noise(3, 50, seed=9),  # of rank 3
        TRUTH[:60].expand(20, -1, -1),  # overlapping bumps
        torch.cat([noise(20, 5, 30), noise(20, 5, 30)], dim=1),  # twins
        torch.cat([noise(20, 5, 30), torch.zeros(20, 4, 30, dtype=torch.float64)], dim=1),  # padded
        1e6 ** torch.linspace(-1, 1, 12, dtype=torch.float64)[:, None] * noise(20, 12, 30),
    ],
)  # fmt: skip
def test_weights_against_scipy(columns):
    signals = noise(20, columns.shape[-1], seed=3)
    signals[:10] = (noise(10, 1, columns.shape[1], seed=4).abs() @ columns[:10])[:, 0] + 0.1 * signals[:10]
    fast = fast_explained(columns, signals)
    slow = [slow_explained(matrix, signal) for matrix, signal in zip(columns, signals, strict=True)]
    np.testing.assert_allclose(fast.numpy(), slow, atol=1e-6)


def test_weights_known_answers():
    columns = noise(4, 3, 8, 20)
    planted = noise(4, 3, 8, seed=1).clamp(min=0)
    signals = (planted[..., None, :] @ columns)[..., 0, :]
    weights = nonnegative_weights(columns @ columns.mT, (columns @ signals[..., None])[..., 0])
    assert torch.allclose(weights, planted, atol=1e-7, rtol=1e-7)
    positive = columns.abs()
    opposed = nonnegative_weights(positive @ positive.mT, -positive.sum(dim=-1))
    assert not opposed.any()
    assert nonnegative_weights(torch.zeros(5, 0, 0), torch.zeros(5, 0)).shape == (5, 0)


def test_what_pivoting_leaves_open_is_solved_one_by_one(monkeypatch):
    columns, signals = noise(6, 8, 30), noise(6, 30, seed=2)
    before = fast_explained(columns, signals)
    monkeypatch.setattr(solver, "PIVOTS", 1)
    assert torch.allclose(fast_explained(columns, signals), before, atol=1e-8, rtol=0)
    monkeypatch.setattr(solver, "_one_by_one", lambda gram, targets: torch.zeros_like(targets))
    assert (before - fast_explained(columns, signals)).max() > 1e-3  # one round is too few


def test_weights_of_memories_that_are_nearly_dependent_satisfy_the_conditions():
    """Broad bumps on a line, of which many sums are nearly the same; coordinate descent would stop too early."""
    bumps = torch.exp(-((torch.arange(24.0)[:, None] - torch.arange(24.0)) ** 2) / 8).double()
    targets = noise(200, 24, seed=5).abs() @ bumps + 0.1 * noise(200, 24, seed=6)
    gram, products = (bumps @ bumps.mT).expand(200, 24, 24), targets @ bumps
    weights = nonnegative_weights(gram, products)
    gradient = (gram @ weights[..., None])[..., 0] - products
    assert weights.min() >= 0
    assert gradient.min() > -1e-5
    assert (gradient * weights).abs().max() < 1e-5


# -- memories ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "weights",
    [
        noise(196, 196).abs(),
        (noise(196, 196) > 1.2).double(),  # about one in nine
    ],
)
def test_matching_memories_explain_any_superposer(weights):
    scores = nonnegative_superposition(superposer(weights), TRUTH, POINTS, HELD_OUT, chosen=INSIDE, truth=TRUTH)
    assert scores["matched"].item() == pytest.approx(1, abs=1e-8)
    assert scores["mismatched"] < 0.6
    assert scores["truth"] < 0.2
    assert scores["beyond_truth"] > 0.8


def test_memories_do_not_explain_composers_and_noise():
    members = torch.stack([TRUTH, noise(*TRUTH.shape)])
    scores = nonnegative_superposition(members, TRUTH, POINTS, HELD_OUT, chosen=INSIDE, truth=TRUTH)
    assert (scores["matched"] - scores["mismatched"]).abs().max() < 0.05
    assert scores["matched"][0] < 0.1
    assert scores["truth"][0].item() == pytest.approx(1)
    assert scores["beyond_truth"][0].item() == pytest.approx(0, abs=1e-9)


def slow_pooled(signals, columns_of):
    """Fraction of the interior outputs explained, point by point with scipy's solver."""
    points = INSIDE.nonzero().flatten().tolist()
    explained = sum(slow_explained(columns_of(p), signals[p]) * float(signals[p] @ signals[p]) for p in points)
    return explained / float(signals[INSIDE].square().sum())


def test_scores_against_scipy():
    signals = noise(2, *TRUTH.shape) / 4 + superposer(noise(196, 196, seed=5).abs())
    memories = TRUTH + 0.1 * noise(2, *TRUTH.shape, seed=6)
    shared = nonnegative_superposition(signals, TRUTH, POINTS, HELD_OUT, chosen=INSIDE, truth=TRUTH)
    own = nonnegative_superposition(signals, memories, POINTS, HELD_OUT, chosen=INSIDE)
    assert set(own) == {"matched", "mismatched"}
    points, sets = column_sets(POINTS, HELD_OUT, INSIDE, 3, 0)
    for member in range(2):
        truth = slow_pooled(signals[member], lambda p: TRUTH[[p]])
        both = slow_pooled(signals[member], lambda p: torch.cat([TRUTH[SHARES[p]], TRUTH[[p]]]))
        assert shared["truth"][member].item() == pytest.approx(truth, abs=1e-6)
        assert shared["beyond_truth"][member].item() == pytest.approx(both - truth, abs=1e-6)
        for scores, basis in ((shared, TRUTH), (own, memories[member])):
            matched = slow_pooled(signals[member], lambda p, basis=basis: basis[SHARES[p]])
            assert scores["matched"][member].item() == pytest.approx(matched, abs=1e-6)
            drawn = [{int(p): basis[row] for p, row in zip(points, rows, strict=True)} for rows in sets[1:]]
            mismatched = np.mean([slow_pooled(signals[member], one.__getitem__) for one in drawn])
            assert scores["mismatched"][member].item() == pytest.approx(mismatched, abs=1e-6)


def random_mask(seed=0):
    return torch.rand(196, generator=torch.Generator().manual_seed(seed)) < 0.3


@pytest.mark.parametrize("held_out", [HELD_OUT, random_mask(), POINTS.amax(dim=-1) < 6])
def test_sets_are_equal_in_size_and_apart_in_values(held_out):
    points, (matched, *mismatched) = column_sets(POINTS, held_out, held_out, 4, 1)
    assert len(mismatched) == 4
    assert torch.equal(points, held_out.nonzero().flatten())
    for row, point in enumerate(points.tolist()):
        columns = set(matched[row].tolist()) - {-1}
        expected = {c for c in range(196) if not held_out[c] and bool((POINTS[c] == POINTS[point]).any())}
        assert columns == expected
        for drawn in mismatched:
            others = [c for c in drawn[row].tolist() if c >= 0]
            assert len(others) == len(set(others)) == len(columns)
            assert not held_out[others].any()
            assert not (POINTS[others] == POINTS[point]).any()
    assert not torch.equal(mismatched[0], mismatched[1])


def test_points_that_nothing_can_be_compared_with_are_left_out():
    band = (POINTS[:, 0] >= 5) & (POINTS[:, 0] <= 8) | (POINTS[:, 1] >= 5) & (POINTS[:, 1] <= 8)
    crossing = ((POINTS >= 5) & (POINTS <= 8)).all(dim=-1)
    signals = superposer(torch.ones(196, 196, dtype=torch.float64))
    assert torch.isnan(nonnegative_superposition(signals, TRUTH, POINTS, band, chosen=crossing)["matched"])
    without = nonnegative_superposition(signals, TRUTH, POINTS, band, chosen=band & ~crossing)
    assert nonnegative_superposition(signals, TRUTH, POINTS, band) == without
    few = torch.ones(14, 14, dtype=torch.bool)
    few[[1, 1, 5], [1, 2, 3]] = False  # the kept ones
    compared = column_sets(POINTS, few.flatten(), few.flatten(), 1, 0)[0].tolist()
    assert 6 * 14 + 3 in compared  # shares with one of three
    assert not {1 * 14 + 3, 1 * 14 + 4, 5 * 14 + 1, 7 * 14 + 7} & set(compared)  # with three, two, two, none
    with pytest.raises(InvalidValue, match="chosen"):
        nonnegative_superposition(signals, TRUTH, POINTS, HELD_OUT, chosen=~HELD_OUT)


def test_members_apart_and_in_parts(monkeypatch):
    signals = noise(2, 3, *TRUTH.shape)
    memories = TRUTH + noise(2, 3, *TRUTH.shape, seed=1)
    for basis in (TRUTH, memories):
        together = nonnegative_superposition(signals, basis, POINTS, HELD_OUT, chosen=INSIDE, truth=TRUTH)
        with monkeypatch.context() as patch:
            patch.setattr("recombine.metrics.superposition.ENTRIES_AT_ONCE", 1)
            parts = nonnegative_superposition(signals, basis, POINTS, HELD_OUT, chosen=INSIDE, truth=TRUTH)
        alone = nonnegative_superposition(
            signals[1, 2], basis if basis.ndim == 2 else basis[1, 2], POINTS, HELD_OUT, chosen=INSIDE, truth=TRUTH
        )
        for name, scores in together.items():
            assert scores.shape == (2, 3)
            assert torch.allclose(scores, parts[name])
            assert torch.allclose(scores[1, 2], alone[name])


# -- stripes -------------------------------------------------------------------------------------------------------

ABSENT = torch.full_like(POINTS[:, 0], torch.nan)
STRIPES = torch.stack(
    [
        TASK.render(torch.stack([POINTS[:, 0], ABSENT], dim=1)).flatten(1),
        TASK.render(torch.stack([ABSENT, POINTS[:, 1]], dim=1)).flatten(1),
    ]
)


def test_stripes_known_answers():
    added = STRIPES[0] + 0.4 * STRIPES[1]
    scores = stripe_superposition(torch.stack([added, TRUTH, added + TRUTH, -TRUTH]), STRIPES, TRUTH, INSIDE)
    assert scores["stripes"][0].item() == pytest.approx(1)
    assert scores["bump"][1].item() == pytest.approx(1)
    assert scores["both"][:3].tolist() == pytest.approx([1, 1, 1])
    assert scores["both"][3].item() == 0
    assert scores["stripe_share"][0] > 0.75
    assert scores["bump_share"][1] > 0.75
    assert scores["bump_share"][0] < scores["bump_share"][2] < scores["bump_share"][1]
    assert torch.allclose((scores["stripe_share"] + scores["bump_share"])[:3], torch.ones(3).double())
    assert (scores["stripes"] < scores["both"] + 1e-9).all()


def test_stripes_against_scipy():
    signals = noise(3, *TRUTH.shape) / 3 + STRIPES[0] + 0.2 * TRUTH
    scores = stripe_superposition(signals, STRIPES, TRUTH, INSIDE)
    for member in range(3):
        stripes = slow_pooled(signals[member], lambda p: STRIPES[:, p])
        bump = slow_pooled(signals[member], lambda p: TRUTH[[p]])
        both = slow_pooled(signals[member], lambda p: torch.cat([STRIPES[:, p], TRUTH[[p]]]))
        assert scores["stripes"][member].item() == pytest.approx(stripes, abs=1e-6)
        assert scores["bump"][member].item() == pytest.approx(bump, abs=1e-6)
        assert scores["both"][member].item() == pytest.approx(both, abs=1e-6)
        share = ((stripes - 0) + (both - bump)) / 2 / both
        assert scores["stripe_share"][member].item() == pytest.approx(share, abs=1e-6)
