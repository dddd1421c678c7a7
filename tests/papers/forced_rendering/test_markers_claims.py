"""C21 on planted networks whose verdict is known."""

import numpy as np
import pytest
import xarray

from recombine.papers.forced_rendering.markers import claims
from recombine.papers.forced_rendering.markers.claims import CLAIMS, TOP
from recombine.papers.forced_rendering.markers.figure import markers_caption, markers_figure
from recombine.papers.forced_rendering.markers.labels import (
    COMPOSING,
    FACTORIZATION,
    MARKERS,
    POSITIONS,
    SPREAD,
    WHOLE_GRID,
)
from recombine.papers.forced_rendering.markers.ranking import model, ranking
from recombine.papers.forced_rendering.markers.telling import names_of, telling_record
from recombine.reproduction.claims import judge
from recombine.reproduction.registration import code_of

DECODERS = ("CNN", "MLP", "low-rank")
ARMS, SEEDS = 10, 4


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(claims, "RESAMPLES", 1000)


def networks(strength, *, seeds=SEEDS, learnt=1.0, decoders=DECODERS):
    """Networks half of which compose; `strength` is how much a marker's mean differs then, by name."""
    generator = np.random.default_rng(0)
    arm = np.repeat(np.arange(len(decoders) * ARMS), seeds)
    composing = arm % 2 == 0
    number = len(arm)
    value = generator.normal(size=(number, len(MARKERS), len(POSITIONS)))
    for name, difference in strength.items():
        value[:, list(MARKERS).index(name)] += difference * composing[:, None]
    unlearnt = np.arange(number) % 100 >= 100 * learnt
    decoder = np.array(decoders)[arm // ARMS]
    labels = {
        "decoder": decoder, "arm": np.char.add(decoder, arm.astype(str)), "seed": np.arange(number) % seeds,
        "data": np.where(arm % 5 == 0, WHOLE_GRID, "all bumps"),
    }  # fmt: skip
    scores = {
        "ood_accuracy": np.where(composing, COMPOSING, 0.3),
        "training_over_blank": np.where(unlearnt, 0.5, 0.01),
        "training_accuracy": np.ones(number),
        "trained": np.ones(number),
    }
    return xarray.Dataset(
        {"value": (("network", "marker", "position"), value), **{k: ("network", v) for k, v in scores.items()}},
        coords={
            "marker": list(MARKERS),
            "position": list(POSITIONS),
            "title": ("marker", [marker.title for marker in MARKERS.values()]),
            "needs_targets": ("marker", [marker.needs_targets for marker in MARKERS.values()]),
            **{name: ("network", own) for name, own in labels.items()},
        },
    )


def judged(data):
    (judgement,) = judge(CLAIMS, {"markers": data})
    return judgement


BOTH = {FACTORIZATION: 3.0, SPREAD: 3.0}


def test_a_telling_factorization_near_the_top_supports_the_claim():
    judgement = judged(networks(BOTH))
    assert judgement.verdict == "supported"
    assert judgement.networks == len(DECODERS) * ARMS * SEEDS
    assert [test.case for test in judgement.tests] == [
        "F, mean over hidden stages and output", "factorization F", "spread of log10 dv"
    ]  # fmt: skip
    assert judgement.tests[0].interval.value > 0.95
    assert judgement.tests[1].interval.value < 0.1


def test_a_factorization_that_tells_nothing_does_not():
    judgement = judged(networks({name: 3.0 for name in MARKERS if not name.startswith(("fact", "spread"))}))
    assert judgement.verdict == "not supported"
    assert judgement.tests[0].interval.value == pytest.approx(0.5, abs=0.15)


def test_less_factorization_in_composing_networks_speaks_against_it():
    judgement = judged(networks({FACTORIZATION: -3.0, SPREAD: 3.0}))
    assert judgement.tests[0].outcome == "not supported"
    assert judgement.tests[0].interval.value < 0.05
    assert judgement.tests[1].outcome == "supported"  # it tells all the same, with the other sign
    assert judgement.verdict == "partly supported"


def test_one_that_is_telling_among_many_is_not_near_the_top():
    judgement = judged(networks(dict.fromkeys(MARKERS, 6.0) | {FACTORIZATION: 2.0, SPREAD: 2.0}))
    assert [test.outcome for test in judgement.tests] == ["supported", "not supported", "not supported"]


def test_few_conditions_give_a_direction_however_many_networks_they_have():
    assert judged(networks(BOTH, decoders=("CNN",), seeds=20)).verdict == "direction only"


def test_one_architecture_has_no_rank():
    judgement = judged(networks(BOTH, decoders=("CNN",)))
    assert [test.outcome for test in judgement.tests] == ["as claimed", "not decidable", "not decidable"]


def test_networks_that_did_not_learn_do_not_count():
    assert judged(networks(BOTH, learnt=0.6)).verdict == "not decidable"
    spoilt = networks(BOTH)
    wrong = np.arange(spoilt.sizes["network"]) % 10 == 0
    spoilt["value"][wrong] = np.where(spoilt["ood_accuracy"][wrong] >= COMPOSING, -99.0, 99.0)[:, None, None]
    spoilt["training_over_blank"][wrong] = 0.5
    judgement = judged(spoilt)
    assert judgement.tests[0].interval.value > 0.95
    assert judgement.tests[0].learnt == (~wrong).sum()
    assert judgement.tests[0].trained == len(wrong)


def test_alternatives_leave_out_networks_trained_on_everything():
    data = networks(BOTH)
    kept = data["data"].values != WHOLE_GRID
    tests = {test.case: test for test in judged(data).alternatives}
    assert tests["without networks trained on the whole grid"].trained == kept.sum() < len(kept)
    assert tests["roughness of log10 dv"].interval.value > TOP > tests["F at the output"].interval.value - 0.75


def test_digests_cover_how_markers_are_scored():
    covered = str([code_of(statement.cases) for statement in CLAIMS[0].statements])
    for name in ("chosen_elsewhere", "left_out", "more_telling", "_paired", "table_of", "learnt"):
        assert f"'{name}'" in covered, name


def test_the_ranking_is_drawn_and_told(monkeypatch):
    from recombine.papers.forced_rendering.markers import ranking as module

    monkeypatch.setattr(module, "RANKING_RESAMPLES", 100)
    monkeypatch.setattr(module, "MODEL_RESAMPLES", 3)
    data = networks({FACTORIZATION: 4.0, "kernel_distance": -3.0})
    best, second = ranking(data)[:2]
    assert (best.name, best.higher, best.needs_targets) == (FACTORIZATION, True, False)
    assert (second.name, second.higher, second.needs_targets) == ("kernel_distance", False, True)
    assert best.auroc.low <= best.auroc.value <= best.auroc.high
    assert model(data).value > 0.95
    figure = markers_figure(data)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert [label.replace(", fall", "") for label in labels[1:3]] == [f"{best.title} ↑", f"{second.title} ↓"]
    assert len(figure.axes) == 3
    assert f"Best: {best.title}" in markers_caption(data)
    assert "120 networks" in markers_caption(data)
    alone = networks(BOTH, decoders=("CNN",))
    assert len(markers_figure(alone).axes) == 3
    assert "no number is scored" in markers_caption(alone)


def test_a_diagnosis_is_told_under_its_own_names(monkeypatch):
    from recombine.papers.forced_rendering.markers import ranking as module

    monkeypatch.setattr(module, "RANKING_RESAMPLES", 50)
    record = telling_record(networks({FACTORIZATION: 4.0, "probe_held_out": -3.0}))
    numbers = record["numbers"]
    assert numbers["factorization_mean"]["auroc"] > 0.99
    assert numbers["factorization_mean"]["higher"]
    assert not numbers["probe_held_out"]["higher"]
    assert numbers["log_volume_std"] == numbers["log_volume_spread"]
    assert {"effective_rank", "id_error", "superposition memorised", "kernel_agreement binary"} <= set(numbers)
    assert "120 networks" in record["networks"]
    assert "40 CNN" in record["networks"]
    assert names_of("kernel_distance") == []
    assert telling_record(networks(BOTH, decoders=("CNN",)))["numbers"] == {}
