"""Verdicts on Datasets of the encodings, attention and encoder studies that were written down."""

import numpy as np
import pytest
import xarray

from recombine.papers.forced_rendering import PAPER as DEFAULT
from recombine.papers.forced_rendering.attention import (
    ARCHITECTURES,
    BASE,
    COMBINATIONS,
    CORNER,
    ONE_HOT,
    PLAIN,
    RATE,
    STUDY,
)
from recombine.papers.forced_rendering.encodings import BOX, CROSS
from recombine.papers.forced_rendering.mlp import MLP_ARM
from recombine.reproduction.claims import judge
from tests.judged import differing

SEEDS = 12
FAILING = {"over_blank": 0.9, "accuracy": 0.4}
COMPOSING = {"over_blank": 0.05, "accuracy": 0.99}
UNCLEAR = {"over_blank": 0.5, "accuracy": 0.9}


def networks(scores, seeds=SEEDS, *, learnt=SEEDS, spread=0.05, seed=0):
    """Scores over seeds, of which some learnt."""
    generator = np.random.default_rng(seed)
    values = {f"{place}_{name}": ("seed", score + spread * generator.normal(size=seeds))
              for place in ("ood", "interior") for name, score in scores.items()}  # fmt: skip
    values |= {f"distance_{name}": (("seed", "distance"), score + spread * generator.normal(size=(seeds, 4)))
               for name, score in scores.items()}  # fmt: skip
    values["id_over_blank"] = ("seed", np.where(np.arange(seeds) < learnt, 0.01, 0.9))
    values["id_accuracy"] = ("seed", np.ones(seeds))
    return xarray.Dataset(values, coords={"distance": [1, 2, 3, 4]})


def joined(parts, *dims):
    """Datasets by labels as one with those dimensions; what is missing is NaN."""
    placed = [own.expand_dims({dim: [label] for dim, label in zip(dims, labels, strict=True)})
              for labels, own in parts.items()]  # fmt: skip
    return xarray.combine_by_coords([own.assign_coords(seed=range(own.sizes["seed"])) for own in placed], join="outer")


def encodings(bump, rate, *, learnt=SEEDS, seeds=SEEDS):
    return joined(
        {
            ("bump", BOX): networks(bump, seeds, learnt=learnt), ("rate", BOX): networks(rate, seeds, learnt=learnt),
            ("bump", CROSS): networks(COMPOSING, min(seeds, 8)),
        },
        "encoding", "holdout",
    )  # fmt: skip


def c1(**data):
    [judged] = judge([DEFAULT.claims["C1"]], data)
    return judged


@pytest.mark.parametrize(
    ("bump", "rate", "verdict"),
    [
        (FAILING, FAILING, "yes"),
        (COMPOSING, COMPOSING, "no"),
        (FAILING, COMPOSING, "partly"),
        (UNCLEAR, UNCLEAR, "open"),
    ],
)
def test_whether_codes_fail(bump, rate, verdict):
    assert c1(encodings=encodings(bump, rate)).described == verdict


def test_networks_that_did_not_learn_decide_nothing():
    assert c1(encodings=encodings(FAILING, FAILING, learnt=8)).described == "not decidable"
    nine = c1(encodings=encodings(FAILING, FAILING, learnt=9))
    assert (nine.described, nine.networks) == ("yes", 9)


def test_other_holdouts_distances_and_decoders_stand_beside():
    base = {(name, BASE): networks(COMPOSING, 8) for name in ARCHITECTURES}
    judged = c1(
        encodings=encodings(FAILING, FAILING),
        mlp=joined({("bump", MLP_ARM, 3): networks(FAILING), ("bump", "CNN", 4): networks(FAILING)},
                   "encoding", "decoder", "depth"),
        attention=joined(base, "decoder", "variant"),
    )  # fmt: skip
    names = {test.case for test in judged.alternatives}
    assert names == {
        "bump, interior", "rate, interior", "bump, 1 px from the kept region", "bump, 2 px from the kept region",
        "bump, 4 px from the kept region", "bump, cross", "bump, MLP of depth 3",
        *(f"bump, {name}" for name in ARCHITECTURES),
    }  # fmt: skip
    assert {test.case for test in differing(judged)} == {"bump, cross", *(f"bump, {name}" for name in ARCHITECTURES)}


# -- C25 -------------------------------------------------------------------------------------------------------------


def attention(coordinate, transformer, *, learnt=SEEDS):
    first, second = ARCHITECTURES
    return joined(
        {
            (first, BASE): networks(coordinate), (second, BASE): networks(transformer, learnt=learnt),
            (first, "depth 2"): networks(FAILING, 8), (PLAIN, BASE): networks(FAILING, 8),
        },
        "decoder", "variant",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("coordinate", "transformer", "learnt", "verdict"),
    [
        (COMPOSING, COMPOSING, SEEDS, "yes"),
        (FAILING, FAILING, SEEDS, "no"),
        (COMPOSING, FAILING, SEEDS, "partly"),
        (UNCLEAR, UNCLEAR, SEEDS, "open"),
        (FAILING, COMPOSING, 3, "no"),
    ],
)
def test_whether_decoders_with_coordinates_compose(coordinate, transformer, learnt, verdict):
    [judged] = judge([DEFAULT.claims["C25"]], {"attention": attention(coordinate, transformer, learnt=learnt)})
    assert judged.described == verdict
    assert [test.case for test in judged.alternatives] == [f"{ARCHITECTURES[0]}, depth 2"] * 2
    assert judged.ours


def test_every_combination_of_code_and_hold_out_is_a_case():
    variants = {ONE_HOT: COMPOSING, f"{RATE}, {CORNER}": FAILING}
    parts = {(name, BASE): networks(COMPOSING) for name in ARCHITECTURES}
    parts |= {(ARCHITECTURES[1], variant): networks(scores) for variant, scores in variants.items()}
    [judged] = judge([DEFAULT.claims["C25"]], {"attention": joined(parts, "decoder", "variant")})
    found = {test.case: test.outcome for test in judged.tests[: len(parts)]}
    assert found == {**dict.fromkeys(ARCHITECTURES, "yes"), f"{ARCHITECTURES[1]}, {ONE_HOT}": "yes",
                     f"{ARCHITECTURES[1]}, {RATE}, {CORNER}": "no"}  # fmt: skip
    assert judged.described == "partly"
    specs = {arm.labels[1]: arm.spec for arm in STUDY.arms(DEFAULT.presets["paper"]) if arm.labels[1] in COMBINATIONS}
    tasks = {(spec.task.encoding.kind, spec.task.holdout.kind) for spec in specs.values()}
    assert len(tasks) == len(COMBINATIONS) == 9


# -- C26 -------------------------------------------------------------------------------------------------------------


def encoder(held_out, outside=1e-4, seeds=SEEDS):
    generator = np.random.default_rng(1)

    def about(value, *shape):
        return value * 10 ** (0.05 * generator.normal(size=(seeds, *shape)))

    one = xarray.Dataset(
        {
            **{name: ("seed", about(held_out)) for name in ("ood_mse", "interior_mse", "readout_held")},
            **{name: ("seed", about(outside)) for name in ("id_mse", "readout_kept")},
            "distance_mse": (("seed", "distance"), about(held_out, 3)),
            "id_over_blank": ("seed", np.full(seeds, 0.01)), "id_accuracy": ("seed", np.ones(seeds)),
        },
        coords={"distance": [1, 2, 3]},
    )  # fmt: skip
    return joined({("bump",): one, ("rate",): one}, "encoding")


@pytest.mark.parametrize(
    ("held_out", "verdict"),
    [(1e-2, "yes"), (5e-4, "no"), (1e-3, "open"), (1e-6, "reversed")],
)
def test_whether_encoders_fail_in_the_hold_out(held_out, verdict):
    [judged] = judge([DEFAULT.claims["C26"]], {"encoder": encoder(held_out)})
    assert judged.described == verdict
    assert differing(judged) == [] or verdict == "open"
    assert "bump, linear read-out of the last hidden stage" in {test.case for test in judged.alternatives}
