"""Verdicts on depth: known answers from planted networks."""

import pytest

from recombine.papers.forced_rendering.depth import CLAIMS
from recombine.papers.forced_rendering.samples import (
    CONTROLS,
    FAILING,
    INITIAL,
    LOW_RANK_UNTRAINED,
    PENALISED,
    STRIPED,
    UNTRAINED,
    WHOLE,
)
from recombine.reproduction.claims import judge
from tests.judged import differing
from tests.papers.forced_rendering.planted_stages import ABSENT, COMPOSED, FAILED, UNLEARNT, line, planted

BY_NAME = {claim.name: claim for claim in CLAIMS}
DEPTHS = (2, 4, 6, 8)
COMPARED = (2, 4, 6)
PROFILE = (
    "probe_held_out", "factorization", "factorization_differences", "factorization_of_means", "spread",
    "spread_excess", "cross_term", "cross_term_held",
)  # fmt: skip
VARIABLE = {"C4": "probe_held_out", "C5": "factorization", "C6": "spread_excess", "C20": "cross_term"}
"""What each claim's first statement is about."""


def depth_data(scores=lambda code, depth: FAILED, noise=0.005, seeds=40, **curves):
    """CNNs whose numbers are 0.5 at every stage unless a curve is given."""
    flat = {name: lambda code, depth: line(0.5, 0.5, depth + 2) for name in PROFILE}
    labels = {"encoding": ("bump", "rate"), "depth": DEPTHS}
    return planted(labels, {**flat, **curves}, scores, noise, seeds, compared=list(COMPARED), shown=4)


def falling(by):
    return lambda code, depth: line(1.0, 1.0 - by, depth + 2)


def late(by):
    """Larger by so much at the last hidden stage and the output."""
    return lambda code, depth: [0.1] * depth + [0.1 + by] * 2


def ending(at):
    return lambda code, depth: [0.7] * (depth + 1) + [at]


def judged(name, data, **others):
    (judgement,) = judge([BY_NAME[name]], {"depth": data, **others})
    return judgement


def outcomes(tests):
    return {test.case: test.outcome for test in tests}


@pytest.mark.parametrize(
    ("name", "curve", "expected"),
    [
        ("C4", falling(0.5), "yes"),
        ("C4", falling(0.05), "no"),
        ("C4", falling(-0.5), "reversed"),
        ("C6", ending(0.4), "yes"),
        ("C6", ending(0.02), "no"),
        ("C6", ending(-0.4), "reversed"),
        ("C20", late(0.1), "yes"),
        ("C20", late(0.0), "no"),
        ("C20", late(-0.1), "reversed"),
    ],
)
def test_claims_with_one_statement(name, curve, expected):
    assert judged(name, depth_data(**{VARIABLE[name]: curve})).described == expected


def test_probes_are_judged_over_hidden_stages_only():
    """All of the fall lies at the output: the claim's test has none, its alternative has."""
    judgement = judged("C4", depth_data(probe_held_out=lambda code, depth: [0.9] * (depth + 1) + [0.1]))
    assert judgement.described == "no"
    assert outcomes(judgement.alternatives)["bump, to the output"] == "yes"
    assert {"bump, to the output", "rate, to the output"} <= {test.case for test in differing(judgement)}


def test_tests_are_on_the_usual_depth_and_others_are_alternatives():
    only_usual = depth_data(factorization=lambda code, depth: line(1.0, 0.8 if depth == 4 else 1.0, depth + 2))
    judgement = judged("C5", only_usual)
    falls = [test for test in judgement.tests if "fall" in test.statistic]
    assert [test.case for test in falls] == ["bump", "rate"]
    assert {test.outcome for test in falls} == {"yes"}
    others = outcomes(test for test in judgement.alternatives if "fall" in test.statistic)
    assert [others[f"{code}, depth {d}"] for code in ("bump", "rate") for d in (2, 6, 8)] == ["no"] * 6
    assert others["bump, to stage 5"] == "yes"
    assert others["bump, to stage 2"] == "yes"  # 0.04 of 0.2
    assert others["bump, finite differences"] == "no"


@pytest.mark.parametrize(("shallow", "expected"), [(0.3, "yes"), (0.1, "no"), (0.02, "reversed")])
def test_shallow_networks_drop_sharper(shallow, expected):
    """One sharp drop after the first hidden stage, of 0.1 in all but the shallowest."""

    def sharp(code, depth):
        return [1.0, *[1.0 - (shallow if depth == 2 else 0.1)] * (depth + 1)]

    judgement = judged("C5", depth_data(factorization=sharp))
    (test,) = (test for test in judgement.tests if "one-layer" in test.statistic)
    assert (test.case, test.outcome) == ("rate, depth 2 less depth 6", expected)
    alternatives = outcomes(test for test in judgement.alternatives if "one-layer" in test.statistic)
    assert alternatives["rate, depth 2 less depth 4"] == alternatives["rate, depth 2 less depth 8"] == expected
    assert alternatives["depth 2, rate less bump"] == "no"


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        (lambda code, depth: FAILED, "yes"),
        (lambda code, depth: COMPOSED if depth == 8 else FAILED, "partly"),
        (lambda code, depth: COMPOSED, "no"),
        (lambda code, depth: UNLEARNT, "not decidable"),
    ],
)
def test_every_depth(scores, expected):
    judgement = judged("C16", depth_data(scores))
    assert judgement.described == expected
    assert [test.case for test in judgement.tests[:2]] == ["bump, depth 2", "bump, depth 4"]
    assert len(judgement.tests) == 2 * 2 * len(DEPTHS)


# -- controls --------------------------------------------------------------------------------------------------------

ARMS = [arm for failing, others in CONTROLS.items() for arm in (failing, *others)]
STAGES = 6


def control_data(curve, scores=lambda arm: FAILED):
    flat = {name: lambda arm: line(0.5, 0.5, STAGES) for name in PROFILE}
    untrained = lambda arm: ABSENT if arm in INITIAL else scores(arm)  # noqa: E731
    return planted({"arm": ARMS}, {**flat, **curve}, untrained)


@pytest.mark.parametrize("name", ["C4", "C5", "C6", "C20"])
def test_what_all_networks_show_is_no_cause(name):
    """Every network has the number that the claim is about, so failing ones have no more of it than others."""
    curve = {"C4": falling(0.5), "C5": falling(0.2), "C6": ending(0.4), "C20": late(0.1)}[name]
    variable = VARIABLE[name]
    data, controls = depth_data(**{variable: curve}), control_data({variable: lambda arm: curve("bump", STAGES - 2)})
    judgement = judged(name, data, controls=controls)
    first = [test for test in judgement.tests if test.statistic == BY_NAME[name].statements[0].criterion.statistic]
    assert {test.outcome for test in first} == {"yes"}
    assert outcomes(judgement.controls) == {f"less {arm}": "no" for arm in ARMS if arm not in CONTROLS}
    assert judged(name, data).controls == []


def test_what_failing_networks_alone_show():
    curve = {"probe_held_out": lambda arm: line(1.0, 0.2 if arm == FAILING else 1.0, STAGES)}
    controls = outcomes(judged("C4", depth_data(), controls=control_data(curve)).controls)
    assert [controls[f"less {arm}"] for arm in (STRIPED, WHOLE, UNTRAINED)] == ["yes"] * 3
    assert [controls[f"less {arm}"] for arm in (PENALISED, LOW_RANK_UNTRAINED)] == ["no"] * 2


def test_controls_must_have_learnt_unless_they_are_untrained():
    curve = {"probe_held_out": lambda arm: line(1.0, 0.2 if arm == FAILING else 1.0, STAGES)}
    data = control_data(curve, lambda arm: UNLEARNT if arm == STRIPED else FAILED)
    controls = outcomes(judged("C4", depth_data(), controls=data).controls)
    assert controls[f"less {STRIPED}"] == "not decidable"
    assert controls[f"less {UNTRAINED}"] == "yes"
    lost = control_data(curve, lambda arm: UNLEARNT if arm == FAILING else FAILED)
    controls = outcomes(judged("C4", depth_data(), controls=lost).controls)
    assert {controls[f"less {arm}"] for arm in CONTROLS[FAILING]} == {"not decidable"}
