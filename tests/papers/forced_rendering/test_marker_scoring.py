"""How telling markers are, on planted tables whose answer is known."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from recombine.papers.forced_rendering import markers_ranking as ranking
from recombine.papers.forced_rendering.markers_ranking import Table

ARCHITECTURES = ("CNN", "MLP", "low-rank", "coordinate MLP")
ARMS, SEEDS = 14, 8
POSITIONS = 3
CODES = ("bump", "rate")
PERFECT, REVERSED, NOISE, BETWEEN, MIXED, PARTIAL = range(6)
"""Markers of the planted table."""


def planted(seed=0):
    """448 networks in 56 arms, half of which compose in either code; markers differ in what they know."""
    generator = np.random.default_rng(seed)
    arms = len(ARCHITECTURES) * ARMS
    arm = np.repeat(np.arange(arms), SEEDS)
    architecture = np.array(ARCHITECTURES)[arm // ARMS]
    composing = arm % 2 == 0
    accuracy = np.where(composing, 0.9, 0.3) + 0.1 * generator.random(len(arm))
    offset = np.array([0.0, 10.0, 20.0, 30.0])[arm // ARMS]
    values = generator.normal(size=(len(arm), 6, POSITIONS))
    values[:, PERFECT, 1] = offset + accuracy
    values[:, REVERSED, 2] = offset - accuracy
    values[:, BETWEEN] = offset[:, None] + generator.normal(size=(len(arm), POSITIONS))
    values[:, MIXED, 0] = np.where(np.isin(architecture, ("CNN", "MLP")), 1, -1) * accuracy
    values[:, PARTIAL, 0] = offset + 2 * composing + generator.normal(size=len(arm))
    code = np.array(CODES)[arm // 2 % 2]
    return Table(values, composing, architecture, code, arm.astype(str))


def coded(seed=0):
    """The same, but nearly all of one code compose and nearly all of the other fail; PARTIAL knows the code alone."""
    table = planted(seed)
    arm = table.arm.astype(int)
    other = arm % ARMS % 7 == 0
    composing = (table.code == CODES[0]) ^ other
    values = table.values.copy()
    values[:, PARTIAL, 0] = 5 * (table.code == CODES[0]) + np.random.default_rng(seed).normal(size=len(arm))
    return replace(table, values=values, composing=composing)


def by_hand(table, name, marker, position):
    """AUROC of an architecture from a loop over all pairs of networks."""
    values, labels = table.values[:, marker, position], list(zip(table.architecture, table.code, strict=True))
    own = [k for k in range(len(values)) if labels[k][0] == name and not np.isnan(values[k])]
    composing, failing = ([k for k in own if table.composing[k] == wanted] for wanted in (True, False))
    pairs = [(values[a], values[b]) for a in composing for b in failing if labels[a] == labels[b]]
    return np.mean([(high > low) + 0.5 * (high == low) for high, low in pairs])


def auroc(values, composing):
    """AUROC of one architecture and code."""
    same = np.full(len(values), "any")
    table = Table(values[:, None, None], composing, same, same, np.arange(len(values)).astype(str))
    pairs = ranking.paired(table, "any")
    return pairs.aurocs(np.ones((1, len(pairs.arms)))).item()


def scores(table):
    return ranking.left_out(ranking.aurocs(table))[0]


def test_auroc_is_scikit_learns():
    generator = np.random.default_rng(0)
    values, composing = generator.integers(0, 9, 60).astype(float), generator.random(60) < 0.4
    assert auroc(values, composing) == pytest.approx(roc_auc_score(composing, values))
    values[:5] = np.nan
    assert auroc(values, composing) == pytest.approx(roc_auc_score(composing[5:], values[5:]))


def test_pairs_are_of_one_architecture_and_one_code():
    table = coded().part(np.arange(len(planted().arm)) % 3 == 0)
    table.values[:, NOISE] = table.values[:, NOISE].round()  # ties
    table.values[::7, PERFECT, 1] = np.nan
    found = ranking.aurocs(table)[0]
    assert table.scored == ARCHITECTURES
    for number, name in enumerate(ARCHITECTURES):
        own = table.part(table.architecture == name)
        for marker, position in ((NOISE, 0), (PERFECT, 1), (PARTIAL, 0)):
            known = by_hand(own, name, marker, position)
            assert found[number, marker, position] == pytest.approx(known)


def test_markers_that_only_separate_codes_tell_nothing():
    table = coded()
    across = replace(table, code=np.full(len(table.arm), "any"))
    assert scores(across)[PARTIAL] > 0.8
    assert np.mean([scores(coded(seed))[PARTIAL] for seed in range(10)]) == pytest.approx(0.5, abs=0.05)
    only_code = replace(table, values=table.values[:, [PARTIAL]])
    assert ranking.model_left_out(replace(across, values=only_code.values))[0] > 0.8
    modelled = [ranking.model_left_out(replace(coded(k), values=coded(k).values[:, [PARTIAL]]))[0] for k in range(10)]
    assert np.mean(modelled) == pytest.approx(0.5, abs=0.05)


def test_perfect_markers_of_either_sign_have_one():
    found = scores(planted())
    assert found[PERFECT] == 1
    assert found[REVERSED] == 1
    assert 0.8 < found[PARTIAL] < 1


def test_a_given_sign_is_not_chosen():
    table, signs = planted(), np.zeros((6, POSITIONS))
    signs[[PERFECT, REVERSED]] = 1
    given = ranking.left_out(ranking.aurocs(table), signs)[0]
    assert given[PERFECT] == 1
    assert given[REVERSED] == pytest.approx(0.5, abs=0.1)  # noise at its other positions
    at_one = replace(table, values=table.values[:, :, 2:])
    assert ranking.left_out(ranking.aurocs(at_one), signs[:, 2:])[0, REVERSED] == 0
    rest = [NOISE, BETWEEN, MIXED, PARTIAL]
    np.testing.assert_array_equal(given[rest], scores(table)[rest])
    np.testing.assert_array_equal(ranking.left_out(ranking.aurocs(table), 0 * signs)[0], scores(table))


def test_markers_that_only_separate_architectures_tell_nothing():
    pooled = planted()
    composing = pooled.composing & np.isin(pooled.architecture, ("CNN", "MLP")) | (np.arange(len(pooled.arm)) % 16 == 0)
    table = replace(pooled, composing=composing)
    assert auroc(-table.values[:, BETWEEN, 0], table.composing) > 0.7  # between architectures it would
    assert scores(table)[BETWEEN] == pytest.approx(0.5, abs=0.1)
    assert np.mean([scores(planted(seed))[BETWEEN] for seed in range(10)]) == pytest.approx(0.5, abs=0.05)


def test_one_architecture_alone_scores_nothing():
    table = planted().part(planted().architecture == "CNN")
    assert np.isnan(scores(table)).all()
    assert np.isnan(ranking.model_left_out(table)).all()


def test_intervals_of_arms_are_wider_than_those_of_networks():
    table = planted()
    shifted = table.values + np.random.default_rng(1).normal(size=(len(ARCHITECTURES) * ARMS, 1, 1))[
        table.arm.astype(int)
    ]  # fmt: skip
    clustered = replace(table, values=shifted)
    alone = replace(clustered, arm=np.arange(len(table.arm)).astype(str))
    spread = [ranking.left_out(ranking.aurocs(part, 200))[:, PARTIAL].std() for part in (clustered, alone)]
    assert spread[0] > 1.5 * spread[1]


def test_share_above_counts_ties_half_and_leaves_out_what_has_no_score():
    found = np.array([[0.9, 0.8, 0.8, np.nan, 0.6]])
    assert ranking.share_above(found, 0) == pytest.approx([0])
    assert ranking.share_above(found, 1) == pytest.approx([1.5 / 3])
    assert ranking.share_above(found, 4) == pytest.approx([1])
    assert np.isnan(ranking.share_above(found, 3)).all()


def test_the_model_finds_what_no_single_marker_has():
    generator, table = np.random.default_rng(5), planted()
    hidden = generator.normal(size=len(table.arm))
    values = generator.normal(size=(len(table.arm), 4, 1))
    sign = np.where(table.composing, 1.0, -1.0)
    values[:, 0, 0], values[:, 1, 0] = 2 * hidden + sign, sign - 2 * hidden
    both = replace(table, values=values)
    assert scores(both)[:2].max() < 0.85
    assert ranking.model_left_out(both)[0] > 0.95
    draws = ranking.model_left_out(both, resamples=5)
    assert draws.shape == (5,)
    assert (draws > 0.9).all()


def test_logistic_regression_is_scikit_learns():
    generator = np.random.default_rng(2)
    features = generator.normal(size=(80, 3))
    outcome = features @ [1.0, -2.0, 0.0] + generator.normal(size=80) > 0.3
    for ridge in (1.0, 0.01):
        weights, intercept = ranking.logistic(features, outcome, ridge)
        known = LogisticRegression(C=1 / ridge, tol=1e-10, max_iter=10_000).fit(features, outcome)
        np.testing.assert_allclose(weights, known.coef_[0], rtol=1e-4)
        assert intercept == pytest.approx(known.intercept_[0], rel=1e-4)
