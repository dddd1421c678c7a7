"""Verdicts on MLPs beside CNNs: known answers from planted networks."""

import pytest

from recombine.papers.forced_rendering.mlp import CLAIMS, CNN_ARM, MLP_ARM, matched_depth
from recombine.papers.forced_rendering.presets import CODES
from recombine.reproduction.claims import judge
from tests.papers.forced_rendering.planted_stages import ABSENT, FAILED, line, planted

MLP_DEPTHS = (3, 4, 5, 6)
CNN_DEPTH = 4
(CLAIM,) = CLAIMS


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


def outcomes(tests):
    return {test.case: test.outcome for test in tests}


SIGNS = [f"{code}, {own}" for own in ("CNN: less volume", "MLP: more volume") for code in CODES]
MORE, EVENLY = ("F falls more in the MLP than in the CNN", "F falls more evenly in the MLP than in the CNN")


def test_opposite_signs_are_as_claimed():
    judgement = judged(mlp_data())
    assert judgement.described == "yes"
    assert outcomes(judgement.tests) == dict.fromkeys(SIGNS, "yes")
    assert {test.outcome for test in judgement.alternatives} == {"yes"}


@pytest.mark.parametrize(
    ("cnn", "mlp", "found"),
    [
        (-0.2, -0.2, ["yes"] * 2 + ["reversed"] * 2),  # the same sign in all networks is not half of a contrast
        (0.2, 0.2, ["reversed"] * 2 + ["yes"] * 2),
        (-0.2, 0.0, ["yes"] * 2 + ["no"] * 2),
        (0.0, 0.2, ["no"] * 2 + ["yes"] * 2),
    ],
)
def test_a_contrast_needs_both_halves(cnn, mlp, found):
    judgement = judged(mlp_data(contrast=(flat(cnn), flat(mlp))))
    assert judgement.described == "no"
    assert outcomes(judgement.tests) == dict(zip(SIGNS, found, strict=True))


def test_all_signs_the_other_way_round_are_reversed():
    assert judged(mlp_data(contrast=(flat(0.2), flat(-0.2)))).described == "reversed"


@pytest.mark.parametrize(
    ("factorization", "more", "evenly"),
    [
        ((sudden(0.9), even(0.6)), "yes", "yes"),
        ((sudden(0.6), even(0.9)), "reversed", "yes"),
        ((even(0.8), sudden(0.6)), "yes", "reversed"),
    ],
)
def test_how_factorization_is_lost_is_beside(factorization, more, evenly):
    judgement = judged(mlp_data(factorization=factorization))
    assert judgement.described == "yes"
    others = {test.case: test for test in judgement.alternatives}
    for code in CODES:
        assert (others[f"{code}, {MORE}"].outcome, others[f"{code}, {EVENLY}"].outcome) == (more, evenly)
        assert others[f"{code}, {MORE}"].measures == f"share of seeds whose {MORE}, less a half"


def test_a_sign_is_of_the_mean_over_stages_and_the_output_alone_is_an_alternative():
    outward = (flat(-0.2), lambda stages: [0.3] * (stages - 1) + [-0.1])
    judgement = judged(mlp_data(contrast=outward))
    assert judgement.described == "yes"
    others = outcomes(judgement.alternatives)
    assert [others[f"{code}, MLP, at the output"] for code in CODES] == ["reversed"] * 2
    assert [others[f"{code}, CNN, at the output"] for code in CODES] == ["yes"] * 2


def test_the_mlp_with_as_many_stages_is_compared():
    assert matched_depth((3, 4, 5, 6, 7), CNN_DEPTH) == 5
    assert stages_of(MLP_ARM, 5) == stages_of(CNN_ARM, CNN_DEPTH)
    assert matched_depth((3, 4), CNN_DEPTH) == 4
    assert matched_depth((3,), CNN_DEPTH) == 3
