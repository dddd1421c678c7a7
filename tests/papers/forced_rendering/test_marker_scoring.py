"""How telling markers are, on planted tables whose answer is known."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from recombine.papers.forced_rendering.markers.scoring import (
    Table,
    auroc,
    aurocs,
    left_out,
    logistic,
    model_left_out,
    more_telling,
    overall,
    spearman,
)

ARCHITECTURES = ("CNN", "MLP", "low-rank", "coordinate MLP")
ARMS, SEEDS = 14, 8
POSITIONS = 3
PERFECT, REVERSED, NOISE, BETWEEN, MIXED, PARTIAL = range(6)
"""Markers of the planted table."""


def planted(seed=0):
    """448 networks in 56 arms, half of which compose; markers differ in what they know."""
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
    return Table(values, composing, accuracy, architecture, arm.astype(str))


def permuted(table, seed):
    """The same with outcomes dealt anew within each architecture."""
    generator, composing = np.random.default_rng(seed), table.composing.copy()
    for name in ARCHITECTURES:
        own = np.flatnonzero(table.architecture == name)
        composing[own] = composing[generator.permutation(own)]
    return Table(table.values, composing, table.accuracy, table.architecture, table.arm)


def scores(table):
    return left_out(aurocs(table))[0]


def test_auroc_is_scikit_learns():
    generator = np.random.default_rng(0)
    values, composing = generator.integers(0, 9, 60).astype(float), generator.random(60) < 0.4
    assert auroc(values, composing) == pytest.approx(roc_auc_score(composing, values))
    values[:5] = np.nan
    assert auroc(values, composing) == pytest.approx(roc_auc_score(composing[5:], values[5:]))
    assert np.isnan(auroc(values, np.ones(60, dtype=bool)))


def test_aurocs_of_arms_together_are_those_of_networks():
    table = planted()
    table.values[::7, NOISE, 1] = np.nan
    found = aurocs(table)[0]
    for number, name in enumerate(table.scored):
        own = table.part(table.architecture == name)
        for marker, position in np.ndindex(6, POSITIONS):
            known = auroc(own.values[:, marker, position], own.composing)
            assert found[number, marker, position] == pytest.approx(known)


def test_a_resample_counts_an_arm_as_often_as_it_is_drawn():
    table = planted().part(planted().architecture == "CNN")
    drawn = aurocs(table, resamples=1, seed=3)[0, 0]
    often = np.random.default_rng(3).multinomial(ARMS, np.full(ARMS, 1 / ARMS), size=1)[0]
    names = np.unique(table.arm)  # the order in which arms are counted
    rows = np.concatenate([np.tile(np.flatnonzero(table.arm == name), n) for name, n in zip(names, often, strict=True)])
    again = table.part(rows)
    for marker, position in np.ndindex(6, POSITIONS):
        assert drawn[marker, position] == pytest.approx(auroc(again.values[:, marker, position], again.composing))


def test_perfect_markers_of_either_sign_have_one():
    found = scores(planted())
    assert found[PERFECT] == 1
    assert found[REVERSED] == 1
    assert 0.8 < found[PARTIAL] < 1


def test_markers_that_only_separate_architectures_tell_nothing():
    pooled = planted()
    composing = pooled.composing & np.isin(pooled.architecture, ("CNN", "MLP")) | (np.arange(len(pooled.arm)) % 16 == 0)
    table = Table(pooled.values, composing, pooled.accuracy, pooled.architecture, pooled.arm)
    assert auroc(-table.values[:, BETWEEN, 0], table.composing) > 0.7  # between architectures it would
    assert scores(table)[BETWEEN] == pytest.approx(0.5, abs=0.1)
    assert np.mean([scores(planted(seed))[BETWEEN] for seed in range(10)]) == pytest.approx(0.5, abs=0.05)


def test_permuted_outcomes_give_half():
    found = np.array([scores(permuted(planted(), seed)) for seed in range(20)])
    assert found.mean() == pytest.approx(0.5, abs=0.02)
    assert found.mean(axis=0) == pytest.approx(np.full(6, 0.5), abs=0.05)
    modelled = [model_left_out(permuted(planted(), seed))[0] for seed in range(20)]
    assert np.mean(modelled) == pytest.approx(0.5, abs=0.05)


def test_a_sign_that_holds_in_some_architectures_only_is_no_help():
    assert scores(planted())[MIXED] < 0.5


def test_architectures_of_one_outcome_are_neither_scored_nor_chosen_on():
    table = planted()
    one_sided = Table(
        table.values, table.composing | (table.architecture == "MLP"), table.accuracy, table.architecture, table.arm
    )
    assert one_sided.scored == ("CNN", "low-rank", "coordinate MLP")
    without = table.part(table.architecture != "MLP")
    np.testing.assert_allclose(scores(one_sided), scores(without))
    assert one_sided.fewest == without.fewest == 3 * ARMS / 2


def test_one_architecture_alone_scores_nothing():
    table = planted().part(planted().architecture == "CNN")
    assert np.isnan(scores(table)).all()
    assert np.isnan(spearman(table)).all()
    assert np.isnan(model_left_out(table)).all()


def test_intervals_of_arms_are_wider_than_those_of_networks():
    table = planted()
    shifted = table.values + np.random.default_rng(1).normal(size=(len(ARCHITECTURES) * ARMS, 1, 1))[
        table.arm.astype(int)
    ]  # fmt: skip
    clustered = Table(shifted, table.composing, table.accuracy, table.architecture, table.arm)
    alone = Table(shifted, table.composing, table.accuracy, table.architecture, np.arange(len(table.arm)).astype(str))
    spread = [left_out(aurocs(part, 200))[:, PARTIAL].std() for part in (clustered, alone)]
    assert spread[0] > 1.5 * spread[1]


def test_spearman_is_one_for_accuracy_itself():
    found = spearman(planted())
    assert found[PERFECT] == pytest.approx(1)
    assert found[REVERSED] == pytest.approx(1)
    assert abs(found[NOISE]) < 0.2


def test_position_and_sign_of_all_together():
    position, sign = overall(aurocs(planted())[0])
    assert position[PERFECT] == 1
    assert position[REVERSED] == 2
    assert (sign[PERFECT], sign[REVERSED]) == (1, -1)


def test_more_telling_counts_ties_half_and_leaves_out_what_has_no_score():
    found = np.array([[0.9, 0.8, 0.8, np.nan, 0.6]])
    assert more_telling(found, 0) == pytest.approx([0])
    assert more_telling(found, 1) == pytest.approx([1.5 / 3])
    assert more_telling(found, 4) == pytest.approx([1])
    assert np.isnan(more_telling(found, 3)).all()


def test_the_model_finds_what_no_single_marker_has():
    generator, table = np.random.default_rng(5), planted()
    hidden = generator.normal(size=len(table.arm))
    values = generator.normal(size=(len(table.arm), 4, 1))
    sign = np.where(table.composing, 1.0, -1.0)
    values[:, 0, 0], values[:, 1, 0] = 2 * hidden + sign, sign - 2 * hidden
    both = Table(values, table.composing, table.accuracy, table.architecture, table.arm)
    assert scores(both)[:2].max() < 0.85
    assert model_left_out(both)[0] > 0.95
    draws = model_left_out(both, resamples=5)
    assert draws.shape == (5,)
    assert (draws > 0.9).all()


def test_logistic_regression_is_scikit_learns():
    generator = np.random.default_rng(2)
    features = generator.normal(size=(80, 3))
    outcome = features @ [1.0, -2.0, 0.0] + generator.normal(size=80) > 0.3
    for ridge in (1.0, 0.01):
        weights, intercept = logistic(features, outcome, ridge)
        known = LogisticRegression(C=1 / ridge, tol=1e-10, max_iter=10_000).fit(features, outcome)
        np.testing.assert_allclose(weights, known.coef_[0], rtol=1e-4)
        assert intercept == pytest.approx(known.intercept_[0], rel=1e-4)


def test_logistic_regression_of_separable_outcomes_stays_finite():
    features = np.linspace(-1, 1, 20)[:, None]
    weights, intercept = logistic(features, features[:, 0] > 0)
    assert np.isfinite([*weights, intercept]).all()
    assert weights[0] > 0
