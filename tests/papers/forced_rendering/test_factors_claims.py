"""Claims on many factors, on Datasets whose numbers are planted; and the study's arms."""

import json

import numpy as np
import pandas
import pytest
import torch
import xarray
from benchmarks.factors_search import chosen, save

from recombine.papers.forced_rendering import PAPER
from recombine.papers.forced_rendering.factors import (
    ALL_KEPT,
    ARMS,
    CLAIMS,
    CNN_ISOLATED,
    CNN_PAIRS,
    COORDINATE,
    LOW_RANK_PENALISED,
    STUDY,
    readable,
)
from recombine.papers.forced_rendering.factors_figure import needed
from tests.papers.forced_rendering.planted_remedies import LEARNT, SEEDS, noise, outcomes, verdict_of

C31, C32, C33, C34 = CLAIMS
COUNTS, DATA = (2, 3, 4, 5), (ALL_KEPT, 20)


def factors(**right):
    """Every arm has 30 % right but for those that are given, by arm."""
    coords = {"arm": list(ARMS), "count": list(COUNTS), "data": list(DATA), "seed": np.arange(SEEDS)}
    shape = tuple(len(values) for values in coords.values())
    variables = {name: (tuple(coords), np.full(shape, value)) for name, value in {**LEARNT, "trained": 1.0}.items()}
    variables["kept_values_accuracy"] = (tuple(coords), np.full(shape, 1.0))
    variables["ood_over_blank"] = (tuple(coords), np.broadcast_to(0.8 + noise(), shape).copy())
    for name in ("all_values_accuracy", "ood_accuracy"):
        table = np.broadcast_to(0.3 + noise(), shape).copy()
        for arm, value in right.items():
            table[ARMS.index(arm)] = np.asarray(value)[..., None, None] + noise(1)
        variables[name] = (tuple(coords), table)
    result = xarray.Dataset(variables, coords=coords)
    result["trained"].loc[{"arm": CNN_PAIRS, "count": 2}] = 0.0
    return {"factors": result}


def test_networks_that_fail_support_only_that():
    data = factors()
    assert verdict_of(C31, data).described == "yes"
    assert len(verdict_of(C31, data).tests) == 2 * len(COUNTS)  # by error and by accuracy
    for claim in (C32, C33, C34):
        assert (verdict_of(claim, data).described, verdict_of(claim, data).specific) == ("no", "no")


@pytest.mark.parametrize(
    ("claim", "arm"), [(C32, CNN_ISOLATED), (C33, LOW_RANK_PENALISED), (C34, COORDINATE)], ids=lambda own: str(own)[:20]
)
def test_a_remedy_that_works_for_every_number_of_factors_is_found(claim, arm):
    found = verdict_of(claim, factors(**{arm: 0.97}))
    assert found.described == found.specific == "yes"
    assert outcomes(found.tests) == ["yes"] * 8


def test_one_that_works_for_few_factors_is_supported_there():
    found = verdict_of(C32, factors(**{CNN_ISOLATED: [0.99, 0.95, 0.7, 0.2]}))
    assert outcomes(found.tests) == [*["yes"] * 2, *["no"] * 2, *["yes"] * 3, "no"]
    assert found.described == found.specific == "partly"


def test_shares_are_relative_to_those_of_trained_combinations():
    data = factors(**{CNN_ISOLATED: 0.89})
    assert verdict_of(C32, data).described == "no"
    data["factors"]["kept_values_accuracy"][:] = 0.96
    assert verdict_of(C32, data).described == "yes"


def test_networks_that_place_bumps_without_learning_their_values_do_not_count():
    data = factors(**{LOW_RANK_PENALISED: 0.97})
    data["factors"]["kept_values_accuracy"].loc[{"arm": LOW_RANK_PENALISED, "count": 4}] = 0.9
    assert outcomes(verdict_of(C33, data).tests) == 2 * ["yes", "yes", "not decidable", "yes"]


def test_pairs_are_isolated_from_three_factors_on():
    cases = [test.case for test in verdict_of(C32, factors()).alternatives]
    assert [case for case in cases if "pairs" in case] == [f"{count} factors, isolated pairs" for count in (3, 4, 5)]


def test_data_needed_are_the_smallest_with_most_outputs_right():
    result = factors(**{COORDINATE: 0.97})["factors"]
    assert needed(result, COORDINATE, 3) == "20"
    result["all_values_accuracy"].loc[{"data": 20}] = 0.5
    assert needed(result, COORDINATE, 3) == "all kept"
    assert needed(result, CNN_ISOLATED, 3) == "not reached"


def test_the_same_share_is_held_out_for_every_number_of_factors():
    arms = STUDY.arms(PAPER.presets["paper"])
    shares = {arm.spec.task.held_out.double().mean().item() for arm in arms}
    assert len({round(share, 12) for share in shares}) == 1
    assert {len(arm.spec.task.grid.factors) for arm in arms} == {2, 3, 4, 5}
    assert all(arm.labels[1] == len(arm.spec.task.grid.factors) for arm in arms)


def test_values_that_no_image_shows_are_not_scored():
    """Two sizes of which one is drawn twice: a network that draws the other two right has no value wrong."""
    images = torch.tensor([[0.0, 1, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1]])
    shown = readable(images, (2, 3))
    slow = [
        [
            sum(bool((images[3 * x + z] == images[3 * x + y]).all()) for z in range(3)) == 1 if factor
            else sum(bool((images[3 * z + y] == images[3 * x + y]).all()) for z in range(2)) == 1
            for factor in range(2)
        ]
        for x in range(2) for y in range(3)
    ]  # fmt: skip
    assert shown.tolist() == slow
    task = PAPER.presets["paper"].bumps_task(4)
    assert readable(task.render(task.grid.points).flatten(1), task.grid.shape).all()


def test_recipes_multiply_the_defaults_of_their_number_of_factors(monkeypatch):
    preset = PAPER.presets["paper"].replace(factors_counts=(2, 3))
    usual = {arm.labels: arm.spec for arm in STUDY.arms(preset.replace(factors_tuned=False))}
    multiples = {"3": {LOW_RANK_PENALISED: {"steps": 2.0, "lr": 3.0, "strength": 0.1}}}
    monkeypatch.setattr("recombine.papers.forced_rendering.factors.recipes", lambda: multiples)
    found = {arm.labels: arm.spec for arm in STUDY.arms(preset)}
    (changed,) = [labels for labels, spec in found.items() if spec != usual[labels]]
    assert changed[:2] == (LOW_RANK_PENALISED, 3)
    spec, before = found[changed], usual[changed]
    assert (spec.total_steps, spec.recipe.lr) == (2 * before.total_steps, pytest.approx(3 * before.recipe.lr))
    weights = [[own.weight for own in one.penalties] for one in (spec, before)]
    assert weights[0] == pytest.approx([0.1 * weight for weight in weights[1]])


def test_the_search_prefers_networks_that_learnt_then_strong_penalties_then_few_steps(tmp_path):
    rows = [  # strength, steps, lr, values right, learnt
        (1.0, 1.0, 1.0, 0.94, 0.0), (0.1, 2.0, 1.0, 0.97, 1.0), (0.1, 1.0, 3.0, 0.96, 1.0), (0.01, 1.0, 1.0, 1.0, 1.0),
    ]  # fmt: skip
    table = pandas.DataFrame(rows, columns=["strength", "steps", "lr", "values right", "learnt"])
    out, recipes = tmp_path / "search.csv", tmp_path / "recipes.json"
    for count in (4, 3, 4):  # a second search with four factors replaces the first
        save(table.assign(factors=count, arm="CNN", seed=900), out, recipes)
    assert len(pandas.read_csv(out)) == 2 * len(rows)
    best = {"CNN": {"strength": 0.1, "steps": 1.0, "lr": 3.0}}
    assert json.loads(recipes.read_text()) == {"3": best, "4": best}
    none = table.assign(learnt=0.0, factors=3, arm="CNN")
    assert chosen(none)["strength"].item() == 0.01  # the most values right
