"""C21 on planted networks whose verdict is known."""

import numpy as np
import pytest
import xarray

from recombine.papers.forced_rendering import markers_claims as claims
from recombine.papers.forced_rendering.markers import (
    FACTORIZATION,
    FALL,
    MARKERS,
    MEAN,
    NAMED,
    PLACES,
    SPREAD,
    predicted_sign,
)
from recombine.papers.forced_rendering.markers_claims import CLAIMS, TOP
from recombine.papers.forced_rendering.markers_ranking import marker_auroc_record, names_of
from recombine.papers.forced_rendering.samples import COMPOSING_ACCURACY, WHOLE
from recombine.reproduction.claims import judge

DECODERS = ("CNN", "MLP", "low-rank")
ARMS, SEEDS = 10, 4


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(claims.scoring, "RESAMPLES", 1000)


def networks(strength, *, seeds=SEEDS, learnt=1.0, decoders=DECODERS):
    """Networks half of which compose; `strength` is how much a marker's mean differs then, by name.

    At the fall along the stages it differs the other way: what composing networks have more of, they lose less of.
    """
    generator = np.random.default_rng(0)
    arm = np.repeat(np.arange(len(decoders) * ARMS), seeds)
    composing = arm % 2 == 0
    number = len(arm)
    value = generator.normal(size=(number, len(MARKERS), len(PLACES)))
    for name, difference in strength.items():
        signs = np.where(np.array(list(PLACES)) == FALL, -1, 1)
        value[:, list(MARKERS).index(name)] += difference * composing[:, None] * signs
    unlearnt = np.arange(number) % 100 >= 100 * learnt
    decoder = np.array(decoders)[arm // ARMS]
    labels = {
        "decoder": decoder, "arm": np.char.add(decoder, arm.astype(str)), "seed": np.arange(number) % seeds,
        "data": np.where(arm % ARMS == 9, "200 bumps", "all bumps"), "code": np.full(number, "bump"),
    }  # fmt: skip
    scores = {
        "ood_accuracy": np.where(composing, COMPOSING_ACCURACY, 0.3),
        "training_over_blank": np.where(unlearnt, 0.5, 0.01),
        "training_accuracy": np.ones(number),
        "trained": np.ones(number),
    }
    return xarray.Dataset(
        {"value": (("network", "marker", "position"), value), **{k: ("network", v) for k, v in scores.items()}},
        coords={
            "marker": list(MARKERS),
            "position": list(PLACES),
            "title": ("marker", [marker.title for marker in MARKERS.values()]),
            "needs_targets": ("marker", [marker.needs_targets for marker in MARKERS.values()]),
            **{name: ("network", own) for name, own in labels.items()},
        },
    )


def judged(data):
    (judgement,) = judge(CLAIMS, {"markers": data})
    return judgement


def unseen(data):
    return data["data"].values != WHOLE


def with_whole_grid(data):
    """And as many networks trained on everything, which compose and have little of F."""
    shown = data.copy(deep=True)
    shown["ood_accuracy"][:] = 1.0
    shown["value"][:] = -9.0
    names = np.char.add(shown["arm"].values.astype(str), " whole")
    shown = shown.assign_coords(
        data=("network", np.full(len(names), WHOLE)), arm=("network", names)
    )  # fmt: skip
    return xarray.concat([data, shown], "network")


BOTH = {FACTORIZATION: 3.0, SPREAD: -3.0}


def test_a_telling_factorization_near_the_top_supports_the_claim():
    judgement = judged(networks(BOTH))
    assert judgement.described == "yes"
    assert judgement.networks == len(DECODERS) * ARMS * SEEDS
    assert [test.case for test in judgement.tests] == [
        "F, mean over hidden stages and output", "factorization F", "spread of log10 dv"
    ]  # fmt: skip
    assert judgement.tests[0].interval.value > 0.45
    assert judgement.tests[1].interval.value < 0.1


def test_a_factorization_that_tells_nothing_does_not():
    judgement = judged(networks({name: 3.0 for name in MARKERS if not name.startswith(("fact", "spread"))}))
    assert judgement.described == "no"
    assert judgement.tests[0].interval.value == pytest.approx(0, abs=0.15)


def test_signs_are_those_that_the_paper_predicts():
    assert predicted_sign(FACTORIZATION, MEAN) == predicted_sign("factorization_held", MEAN) == 1
    for name in (SPREAD, "spread_held", "spread_excess", "roughness"):
        assert predicted_sign(name, MEAN) == -1
    assert predicted_sign(FACTORIZATION, FALL) == -1
    assert predicted_sign(SPREAD, FALL) == 1
    assert {predicted_sign(name, MEAN) for name, own in MARKERS.items() if own.family not in NAMED} == {0}


def test_forms_of_what_the_paper_names_are_no_rivals():
    named = {name: (3.0 if own.family == "factorization" else -3.0) for name, own in MARKERS.items()
             if own.family in NAMED}  # fmt: skip
    assert set(named) == {
        "factorization", "factorization_held", "factorization_differences", "cross_term", "cross_term_held", "spread",
        "spread_held", "spread_excess", "contrast", "roughness", "roughness_held",
    }  # fmt: skip
    stronger = {name: 3 * difference for name, difference in named.items()}
    judgement = judged(networks(stronger | BOTH))
    assert judgement.described == "yes"
    assert [test.interval.value for test in judgement.tests[1:]] == [0, 0]


def test_what_codes_do_is_not_what_composing_needs():
    data = networks({SPREAD: -3.0})
    arm = np.arange(data.sizes["network"]) // SEEDS % ARMS
    rate = arm >= 5
    composing = np.where(rate, arm == 9, arm != 0)
    data["ood_accuracy"][:] = np.where(composing, COMPOSING_ACCURACY, 0.3)
    data["value"].loc[{"marker": FACTORIZATION}] = data["value"].sel(marker=FACTORIZATION) - 5.0 * rate[:, None]
    data = data.assign_coords(code=("network", np.where(rate, "rate", "bump")))
    judgement = judged(data)
    assert judgement.tests[0].interval.value == pytest.approx(0, abs=0.15)
    across = {test.case: test for test in judgement.alternatives}["pairs across codes"]
    assert across.interval.value > 0.2


def test_few_conditions_give_a_direction_however_many_networks_they_have():
    assert judged(networks(BOTH, decoders=("CNN",), seeds=20)).described == "direction only"


def test_networks_trained_on_everything_count_in_an_alternative_alone():
    data = networks(BOTH)
    every = with_whole_grid(data)
    judgement, known = judged(every), judged(data)
    assert [test.interval for test in judgement.tests] == [test.interval for test in known.tests]
    assert judgement.tests[0].trained == unseen(every).sum() == data.sizes["network"]
    tests = {test.case: test for test in judgement.alternatives}
    whole = tests["with networks trained on the whole grid"]
    assert whole.trained == every.sizes["network"]
    assert whole.interval.value < 0.25 < tests["F at the output"].interval.value
    assert tests["roughness of log10 dv"].interval.value > TOP


def test_a_diagnosis_is_told_under_its_own_names(monkeypatch):
    from recombine.papers.forced_rendering import markers_ranking as module

    monkeypatch.setattr(module, "RANKING_RESAMPLES", 50)
    record = marker_auroc_record(networks({FACTORIZATION: 4.0, "probe_held_out": -3.0}))
    numbers = record["numbers"]
    assert numbers["factorization_mean"]["auroc"] > 0.99
    assert numbers["factorization_mean"]["higher"]
    assert not numbers["probe_held_out"]["higher"]
    assert numbers["log_volume_std"] == numbers["log_volume_spread"]
    assert {"effective_rank", "id_error", "superposition memorised", "kernel_agreement binary"} <= set(numbers)
    assert "120 networks" in record["networks"]
    assert "40 CNN" in record["networks"]
    assert marker_auroc_record(with_whole_grid(networks({FACTORIZATION: 4.0, "probe_held_out": -3.0}))) == record
    assert names_of("kernel_distance") == []
    assert marker_auroc_record(networks(BOTH, decoders=("CNN",)))["numbers"] == {}
