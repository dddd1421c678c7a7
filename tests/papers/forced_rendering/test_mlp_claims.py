"""Verdicts on MLPs beside CNNs: known answers from planted networks."""

import pytest

from recombine.papers.forced_rendering.mlp import CLAIMS, CNN_ARM, MLP_ARM, matched_depth
from recombine.papers.forced_rendering.presets import CODES
from recombine.reproduction.claims import judge
from tests.papers.forced_rendering.planted_stages import ABSENT, FAILED, line, planted

MLP_DEPTHS = (3, 4, 5, 6)
CNN_DEPTH = 4
(CLAIM,) = CLAIMS
CNN_SIGN, MLP_SIGN, FALL, EVENNESS = (statement.criterion.statistic for statement in CLAIM.statements)


def stages_of(decoder, depth):
    """Hidden stages and the output; none where there is no such network."""
    if decoder == CNN_ARM:
        return CNN_DEPTH + 2 if depth == CNN_DEPTH else None
    return depth + 1 if depth in MLP_DEPTHS else None


def curve(cnn, mlp):
    """From functions of the number of stages."""

    def values(code, decoder, depth):
        stages = stages_of(decoder, depth)
        return None if stages is None else (cnn if decoder == CNN_ARM else mlp)(stages)

    return values


def flat(value):
    return lambda stages: line(value, value, stages)


def even(last):
    return lambda stages: line(1.0, last, stages)


def sudden(last):
    """All of the fall at the output."""
    return lambda stages: [1.0] * (stages - 1) + [last]


AS_CLAIMED = {"contrast": (flat(-0.2), flat(0.2)), "factorization": (sudden(0.9), even(0.6))}
"""Of the CNN and of the MLP."""


def mlp_data(contrast=AS_CLAIMED["contrast"], factorization=AS_CLAIMED["factorization"], scores=lambda *arm: FAILED):
    factorizations = curve(*factorization)
    curves = {
        "contrast": curve(*contrast), "factorization": factorizations, "factorization_of_means": factorizations,
    }  # fmt: skip
    labels = {"encoding": CODES, "decoder": (MLP_ARM, CNN_ARM), "depth": MLP_DEPTHS}

    def own(code, decoder, depth):
        return ABSENT if stages_of(decoder, depth) is None else scores(code, decoder, depth)

    return planted(labels, curves, own, cnn_depth=CNN_DEPTH, mlp_depths=list(MLP_DEPTHS))


def judged(data, **others):
    (judgement,) = judge(CLAIMS, {"mlp": data, **others})
    return judgement


def outcomes(tests, statistic):
    return {test.case: test.outcome for test in tests if test.statistic == statistic}


def test_all_that_is_claimed_is_supported():
    judgement = judged(mlp_data())
    assert judgement.described == "yes"
    assert [test.case for test in judgement.tests] == [
        "bump, CNN", "rate, CNN", "bump, MLP", "rate, MLP", *["bump", "rate"] * 2
    ]  # fmt: skip
    assert {test.outcome for test in judgement.alternatives} == {"yes"}


@pytest.mark.parametrize(
    ("statistic", "planting", "expected"),
    [
        (CNN_SIGN, {"contrast": (flat(0.2), flat(0.2))}, "reversed"),
        (CNN_SIGN, {"contrast": (flat(0.0), flat(0.2))}, "no"),
        (MLP_SIGN, {"contrast": (flat(-0.2), flat(-0.2))}, "reversed"),
        (MLP_SIGN, {"contrast": (flat(-0.2), flat(0.0))}, "no"),
        (FALL, {"factorization": (sudden(0.9), even(0.9))}, "no"),
        (FALL, {"factorization": (sudden(0.6), even(0.9))}, "reversed"),
        (EVENNESS, {"factorization": (even(0.8), even(0.6))}, "no"),
        (EVENNESS, {"factorization": (even(0.8), sudden(0.6))}, "reversed"),
        (EVENNESS, {"factorization": (flat(0.99), sudden(0.6))}, "reversed"),  # that of noise alone
    ],
)
def test_statements_one_by_one(statistic, planting, expected):
    judgement = judged(mlp_data(**planting))
    assert set(outcomes(judgement.tests, statistic).values()) == {expected}
    rest = {CNN_SIGN, MLP_SIGN, FALL, EVENNESS} - {
        statistic,
        *((FALL, EVENNESS) if "factorization" in planting else ()),
    }
    assert all(set(outcomes(judgement.tests, other).values()) == {"yes"} for other in rest)


def test_a_sign_is_of_the_mean_over_stages_and_the_output_alone_is_an_alternative():
    outward = (flat(-0.2), lambda stages: [0.3] * (stages - 1) + [-0.1])
    judgement = judged(mlp_data(contrast=outward))
    assert outcomes(judgement.tests, MLP_SIGN) == {"bump, MLP": "yes", "rate, MLP": "yes"}
    assert outcomes(judgement.alternatives, MLP_SIGN)["bump, MLP, at the output"] == "reversed"
    assert outcomes(judgement.alternatives, CNN_SIGN) == {
        "bump, CNN, at the output": "yes",
        "rate, CNN, at the output": "yes",
    }


def test_the_mlp_with_as_many_stages_is_compared():
    assert matched_depth((3, 4, 5, 6, 7), CNN_DEPTH) == 5
    assert stages_of(MLP_ARM, 5) == stages_of(CNN_ARM, CNN_DEPTH)
    assert matched_depth((3, 4), CNN_DEPTH) == 4
    assert matched_depth((3,), CNN_DEPTH) == 3
