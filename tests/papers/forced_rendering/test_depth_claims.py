"""Verdicts on depth: known answers from planted networks."""

import pytest
import xarray

from recombine.papers.forced_rendering.depth import CLAIMS, STEPS
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
    "probe_held_out", "factorization", "factorization_of_means", "spread", "spread_excess", "deviation_excess",
    "cross_term", "cross_term_held", *(f"step {step:g}" for step in STEPS),
)  # fmt: skip
VARIABLE = {"C4": "probe_held_out", "C5": "factorization", "C6": "deviation_excess", "C20": "cross_term"}
"""What each claim's first statement is about."""


def depth_data(scores=lambda code, depth: FAILED, noise=0.005, seeds=40, **curves):
    """CNNs whose numbers are 0.5 at every stage unless a curve is given; F is 1 at the input."""
    flat = {name: lambda code, depth: line(0.5, 0.5, depth + 2) for name in PROFILE}
    labels = {"encoding": ("bump", "rate"), "depth": DEPTHS}
    inputs = dict.fromkeys((name for name in PROFILE if name.startswith(("factorization", "step"))), 1.0)
    data = planted(labels, {**flat, **curves}, scores, noise, seeds, inputs, compared=list(COMPARED), shown=4)
    steps = [data[f"step {step:g}"] for step in STEPS]
    return data.assign(
        factorization_by_step=xarray.concat(steps, xarray.DataArray(list(STEPS), dims="step", name="step"))
    )


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
    falls = [test for test in judgement.tests if "fall" in test.statistic and test.word == "described"]
    assert [test.case for test in falls] == ["bump", "rate"]
    assert {test.outcome for test in falls} == {"yes"}
    others = outcomes(test for test in judgement.alternatives if "fall" in test.statistic)
    assert [others[f"{code}, depth {d}"] for code in ("bump", "rate") for d in (2, 6, 8)] == ["no"] * 6
    assert others["bump, to stage 5"] == "yes"
    assert others["bump, to stage 2"] == "yes"  # 0.04 of 0.2
    assert others["bump, finite differences over 1 px"] == "no"


def test_finite_differences_over_each_step_are_alternatives():
    curves = {"factorization": falling(0.2), "step 0.5": falling(0.2), "step 0.125": falling(-0.2)}
    judgement = judged("C5", depth_data(**curves))
    others = outcomes(test for test in judgement.alternatives if "fall" in test.statistic)
    found = [others[f"rate, finite differences over {step:g} px"] for step in (1, 0.5, 0.25, 0.125)]
    assert found == ["no", "yes", "no", "reversed"]
    sharper = outcomes(test for test in judgement.alternatives if "one stage" in test.statistic)
    assert {f"rate, finite differences over {step:g} px" for step in STEPS} < set(sharper)


def test_a_shift_of_the_level_is_distortion_and_centring_each_region_is_an_alternative():
    judgement = judged("C6", depth_data(deviation_excess=ending(0.4), spread_excess=ending(0.0)))
    assert judgement.described == "yes"
    assert outcomes(judgement.alternatives)["bump, about each region's own mean"] == "no"


@pytest.mark.parametrize(("shallow", "expected"), [(0.3, "yes"), (0.1, "no"), (0.02, "reversed")])
@pytest.mark.parametrize("from_input", [False, True])
def test_shallow_networks_drop_sharper(shallow, expected, from_input):
    """One sharp drop of 0.1 in all but the shallowest, from the input or after the first hidden stage."""

    def sharp(code, depth):
        lowest = 1.0 - (shallow if depth == 2 else 0.1)
        return [lowest if from_input else 1.0, *[lowest] * (depth + 1)]

    judgement = judged("C5", depth_data(factorization=sharp))
    (test,) = (test for test in judgement.tests if "one stage" in test.statistic)
    assert (test.case, test.outcome) == ("rate, depth 2 less depth 6", expected)
    alternatives = outcomes(test for test in judgement.alternatives if "one stage" in test.statistic)
    assert alternatives["rate, depth 2 less depth 4"] == alternatives["rate, depth 2 less depth 8"] == expected
    assert alternatives["depth 2, rate less bump"] == "no"
    assert alternatives["rate, from the first hidden stage on"] == ("no" if from_input else expected)


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
    first, specific = (own.criterion.statistic for own in BY_NAME[name].statements[:2])
    assert {test.outcome for test in judgement.tests if test.statistic == first} == {"yes"}
    assert outcomes(test for test in judgement.tests if test.statistic == specific) == {f"less {STRIPED}": "no"}
    assert judgement.specific == "no"
    assert outcomes(judgement.controls) == {f"less {arm}": "no" for arm in ARMS if arm not in (*CONTROLS, STRIPED)}
    alone = judged(name, data)
    assert (alone.specific, alone.controls) == ("not measured", [])


@pytest.mark.parametrize("name", ["C4", "C6", "C20"])
def test_what_failing_networks_alone_show_is_specific(name):
    """A probe that falls in failing networks and in no others, and so on."""
    curve, flat = {"C4": falling(0.5), "C6": ending(0.4), "C20": late(0.1)}[name], lambda *arm: line(0.1, 0.1, STAGES)
    own = control_data({VARIABLE[name]: lambda arm: (curve if arm == FAILING else flat)("bump", STAGES - 2)})
    judgement = judged(name, depth_data(**{VARIABLE[name]: curve}), controls=own)
    assert judgement.headline == "described, specific"
    controls = outcomes(judgement.controls)
    assert [controls[f"less {arm}"] for arm in (WHOLE, UNTRAINED)] == ["yes"] * 2
    assert [controls[f"less {arm}"] for arm in (PENALISED, LOW_RANK_UNTRAINED)] == ["no"] * 2


def test_controls_must_have_learnt_unless_they_are_untrained():
    curve = {"probe_held_out": lambda arm: line(1.0, 0.2 if arm == FAILING else 1.0, STAGES)}
    data = control_data(curve, lambda arm: UNLEARNT if arm == STRIPED else FAILED)
    judgement = judged("C4", depth_data(), controls=data)
    assert judgement.specific == "not decidable"
    assert outcomes(judgement.controls)[f"less {UNTRAINED}"] == "yes"
    lost = control_data(curve, lambda arm: UNLEARNT if arm == FAILING else FAILED)
    judgement = judged("C4", depth_data(), controls=lost)
    controls = outcomes(judgement.controls)
    assert {judgement.specific, *(controls[f"less {arm}"] for arm in (WHOLE, UNTRAINED))} == {"not decidable"}


@pytest.mark.parametrize("name", ["C5", "C6"])
def test_what_an_earlier_version_did_not_measure_is_left_out(name):
    data = depth_data(factorization=falling(0.2)).drop_vars(["factorization_by_step", "deviation_excess"])
    judgement = judged(name, data)
    assert judgement.described == ("yes" if name == "C5" else "not measured")
    assert not any("finite differences" in test.case for test in judgement.alternatives)
