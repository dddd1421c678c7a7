"""Does held-out accuracy follow a dose of the cross-term: planted dose responses, and a study that is trained."""

import numpy as np
import pytest
import torch
import xarray
from matplotlib import pyplot
from scipy.stats import spearmanr

from recombine.papers.forced_rendering import PAPER
from recombine.papers.forced_rendering.causal import (
    CLAIMS,
    COMPOSING,
    FAILING,
    FIGURES,
    STAGES,
    STUDY,
    change,
    rank_correlation,
)
from recombine.sweep import train
from tests.papers.forced_rendering.planted_remedies import LEARNT, SEEDS, noise, verdict_of
from tests.tiny import TINY

(C36,) = CLAIMS
DOSES = 5
FLAT_LOW, FLAT_HIGH = np.full(DOSES, 0.4), np.full(DOSES, 1.0)


def causal(failing, composing, *, learnt=SEEDS, stages=None):
    """The study's Dataset with these accuracies by dose; `stages` are those at which doses act."""
    dims, shape = ("family", "stage", "dose", "seed"), (2, len(STAGES), DOSES, SEEDS)
    accuracy = np.zeros(shape)
    for k, own in enumerate((failing, composing)):
        for place, stage in enumerate(STAGES):
            values = own if stages is None or stage in stages else np.full(DOSES, own[0])
            accuracy[k, place] = values[:, None] + np.stack([noise(dose + 10 * place) for dose in range(DOSES)])
    fit = {name: np.full(shape, value) for name, value in LEARNT.items()}
    fit["training_over_blank"][..., -1, learnt:] = 0.9  # at the largest dose
    variables = {"ood_accuracy": accuracy, "ood_over_blank": 1.1 - accuracy, "cross_term": 1.2 - accuracy, **fit}
    coords = {"family": [FAILING, COMPOSING], "stage": list(STAGES), "dose": range(DOSES), "seed": range(SEEDS)}
    return {"causal": xarray.Dataset({name: (dims, own) for name, own in variables.items()}, coords)}


RISING, FALLING = np.linspace(0.3, 0.9, DOSES), np.linspace(1.0, 0.3, DOSES)


@pytest.mark.parametrize(
    ("data", "described", "specific"),
    [
        (causal(RISING, FALLING), "yes", "yes"),
        (causal(RISING, FLAT_HIGH), "yes", "no"),
        (causal(FLAT_LOW, FLAT_HIGH), "no", "no"),
        (causal(RISING[::-1], FALLING[::-1]), "reversed", "reversed"),
        (causal(RISING, FALLING, stages=("output",)), "partly", "partly"),
        (causal(RISING, FALLING, learnt=6), "not decidable", "not decidable"),
    ],
)
def test_a_planted_response_is_found(data, described, specific):
    found = verdict_of(C36, data)
    assert (found.described, found.specific) == (described, specific)


def test_the_size_of_a_planted_response_is_found():
    found = verdict_of(C36, causal(RISING, FALLING))
    values = {(test.statistic[:4], test.case): test.interval.value for test in (*found.tests, *found.alternatives)}
    assert values["rise", "output"] == pytest.approx(0.6, abs=0.01)
    assert values["fall", "output"] == pytest.approx(0.7, abs=0.01)
    assert values["rise", "output, rank correlation"] == pytest.approx(1.0)


def test_shuffled_doses_give_no_verdict():
    data = causal(RISING, FALLING)["causal"]
    generator = np.random.default_rng(0)
    shuffled = generator.permuted(data["ood_accuracy"].values, axis=2)
    found = verdict_of(C36, {"causal": data.assign(ood_accuracy=(data["ood_accuracy"].dims, shuffled))})
    assert not {"yes", "reversed"} & {test.outcome for test in found.tests}


def test_change_and_correlation_are_those_of_numpy_and_scipy():
    values = np.random.default_rng(0).normal(size=(DOSES, 7)).round(1)  # some are equal
    values[2, 3], values[:, 5] = np.nan, 0.25
    table = xarray.DataArray(values, dims=("dose", "seed"))
    for seed in (0, 1, 2, 4, 6):
        line = np.polynomial.Polynomial.fit(np.arange(DOSES), values[:, seed], 1)
        assert change(table)[seed] == pytest.approx(line(DOSES - 1) - line(0))
        assert rank_correlation(table)[seed] == pytest.approx(spearmanr(np.arange(DOSES), values[:, seed]).statistic)
    assert change(table)[3].isnull()
    assert rank_correlation(table)[3].isnull()
    assert (change(table)[5], rank_correlation(table)[5]) == (pytest.approx(0), 0)


def test_doses_are_half_a_decade_apart():
    preset = PAPER.preset_named("paper")
    specs = {arm.labels: arm.spec for arm in STUDY.arms(preset)}
    for family, largest in ((FAILING, preset.causal_penalty), (COMPOSING, preset.causal_reward)):
        weights = [specs[family, "middle", dose].penalties[0].weight for dose in range(1, preset.causal_doses + 1)]
        assert weights[-1] == largest
        assert np.diff(np.log10(weights)) == pytest.approx(0.5, abs=0.01)
        assert not specs[family, "middle", 0].penalties
    assert len({spec.digest for spec in specs.values()}) == 2 * (1 + 3 * preset.causal_doses)


@pytest.mark.integration
def test_the_study_is_trained_measured_and_drawn(tmp_path):
    preset = PAPER.preset_named("quick").changed([*TINY, "seeds=1", "causal_steps=3", "causal_doses=1"])
    specs = list({spec.digest: spec for spec in STUDY.specs(preset)}.values())
    runs = {run.spec.digest: run for run in train(specs, store=tmp_path, device="cpu")}
    result = STUDY.measure(STUDY.trials(preset, torch.device("cpu"), runs))
    assert result["cross_term"].dims == ("family", "stage", "dose", "seed")
    assert result["cross_term"].notnull().all()
    without = result["cross_term"].sel(family=FAILING, dose=0).values.ravel()
    assert len(set(without.tolist())) == len(STAGES)  # the same network at each of its stages
    [figure] = FIGURES
    assert figure.draw(result).axes
    assert f"{FAILING}, output stage" in [row[0] for row in figure.table(result)]
    pyplot.close("all")
