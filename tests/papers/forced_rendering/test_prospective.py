"""Markers with thresholds fixed in advance: planted markers that tell and that do not, and a study that is trained."""

import numpy as np
import pytest
import torch
import xarray
from matplotlib import pyplot

from recombine.metrics import effective_rank, gram_matrix, schmidt_spectrum
from recombine.papers.forced_rendering import PAPER
from recombine.papers.forced_rendering import prospective as study_module
from recombine.papers.forced_rendering.markers import OUTPUT
from recombine.papers.forced_rendering.prospective import (
    CHOSEN,
    CLAIMS,
    FIGURES,
    RULES,
    SHARES,
    STUDY,
    accuracy_by_setting,
    auroc_by_setting,
    fixed_thresholds,
    schmidt_rank,
)
from recombine.sweep import train
from recombine.training import Ensemble, fit
from tests.papers.forced_rendering.planted_remedies import LEARNT, verdict_of
from tests.small import small_spec
from tests.tiny import TINY

(C35,) = CLAIMS
SETTINGS, SEEDS = ("a", "b", "c"), 12
SIGNS = np.array([1 if RULES[name]["higher"] else -1 for name in CHOSEN])
THRESHOLDS = np.array([RULES[name]["threshold"] for name in CHOSEN])


def prospective(told, *, offset=0.0, learnt=SEEDS, shuffle=None):
    """The study's Dataset with markers that tell by `told` standard deviations, about thresholds that are `offset`."""
    generator = np.random.default_rng(0)
    composes = np.broadcast_to(np.array([0, 1])[None, :, None], (len(SETTINGS), 2, SEEDS))
    held_out = np.where(composes, 0.97, 0.4)
    if shuffle:
        held_out = shuffle.permuted(held_out.reshape(len(SETTINGS), -1), axis=1).reshape(held_out.shape)
    shape = (*composes.shape, len(SHARES), len(CHOSEN))
    early = np.array(SHARES)[:, None]  # tells half as much after half of the steps
    signal = told * early * (2 * composes[..., None, None] - 1) + generator.normal(size=shape) + offset
    values = THRESHOLDS + 0.05 * SIGNS * signal
    dims = ("setting", "expected", "seed")
    fit = {name: np.full(composes.shape, value) for name, value in LEARNT.items()}
    fit["training_over_blank"][..., learnt:] = 0.9
    final = {"held_out": held_out, "trained": np.ones(composes.shape), **fit}
    variables = {
        name: (("share", *dims), np.broadcast_to(own, (len(SHARES), *own.shape))) for name, own in final.items()
    }
    variables["value"] = ((*dims, "share", "marker"), values)
    coords = {"setting": list(SETTINGS), "expected": ["fails", "composes"], "seed": np.arange(SEEDS),
              "share": list(SHARES), "marker": list(CHOSEN)}  # fmt: skip
    return {"prospective": xarray.Dataset(variables, coords)}


@pytest.mark.parametrize(
    ("data", "outcomes"),
    [
        (prospective(4.0), ["yes", "yes"]),
        (prospective(0.0), ["no", "no"]),
        (prospective(4.0, offset=20.0), ["yes", "no"]),  # it tells, but about another threshold
        (prospective(4.0, learnt=6), ["not decidable"] * 2),
        (prospective(4.0, shuffle=np.random.default_rng(1)), ["no", "no"]),
    ],
    ids=["tells", "does not tell", "another threshold", "did not learn", "permuted labels"],
)
def test_a_planted_marker_is_judged(data, outcomes):
    assert [test.outcome for test in verdict_of(C35, data).tests] == outcomes


def test_a_marker_that_tells_late_tells_less_early():
    alternatives = {test.case: test.interval.value for test in verdict_of(C35, prospective(1.5)).alternatives}
    early = [value for case, value in alternatives.items() if "of the steps" in case]
    assert early == sorted(early)
    assert early[0] < 0.8 < 0.95 < verdict_of(C35, prospective(1.5)).tests[0].interval.value
    assert {f"Schmidt rank of the kernel, {name}" for name in SETTINGS} <= set(alternatives)


def test_pairs_are_of_one_setting():
    """A marker that tells settings apart, of which one composes more often, but nothing within them."""
    generator = np.random.default_rng(0)
    setting = np.repeat(["a", "b"], 50)
    composing = np.concatenate([np.arange(50) < 40, np.arange(50) < 10])
    values = (setting == "a") * 10.0 + generator.normal(size=100).round(1)
    expected = []
    for name in ("a", "b"):
        own, up = values[setting == name], composing[setting == name]
        pairs = [(a > b) + 0.5 * (a == b) for a in own[up] for b in own[~up]]
        expected.append(sum(pairs) / len(pairs))
    assert auroc_by_setting(values, composing, setting)[0] == pytest.approx(expected)
    assert np.isnan(auroc_by_setting(values, np.ones(100, dtype=bool), setting)).all()


@pytest.mark.parametrize("score", [auroc_by_setting, accuracy_by_setting])
def test_weights_repeat_networks(score):
    generator = np.random.default_rng(0)
    values, composing, setting = generator.normal(size=20).round(1), np.arange(20) % 3 == 0, np.repeat(["a", "b"], 10)
    weights = generator.integers(0, 3, size=(2, 20))
    for row, found in zip(weights, score(values, composing, setting, weights.astype(float)), strict=True):
        repeated = [np.repeat(part, row) for part in (values, composing, setting)]
        assert found == pytest.approx(score(*repeated)[0])


def test_thresholds_lie_between_composing_and_failing_networks():
    count = 40
    composing = np.arange(count) % 2 == 0
    values = np.where(composing, 1.0, 3.0) + np.linspace(0, 0.5, count)
    marker = np.stack([values, values, -values], axis=1)[:, :, None]
    table = {"ood_accuracy": ("network", np.where(composing, 0.95, 0.3)), "trained": ("network", np.ones(count)),
             "value": (("network", "marker", "position"), marker),
             **{name: ("network", np.full(count, value)) for name, value in LEARNT.items()}}  # fmt: skip
    names = {"decoder": np.repeat(["CNN", "MLP"], count // 2), "code": ["bump"] * count, "data": ["all bumps"] * count,
             "arm": np.repeat(list("abcd"), count // 4), "seed": np.arange(count)}  # fmt: skip
    coords = {"marker": list(CHOSEN), "position": [OUTPUT], **{name: ("network", own) for name, own in names.items()}}
    rules = fixed_thresholds(xarray.Dataset(table, coords))["markers"]
    assert [rules[name]["higher"] for name in CHOSEN] == [False, False, True]
    assert 1.5 < rules["schmidt_rank"]["threshold"] < 3.0
    assert -3.0 < rules["factorization_held"]["threshold"] < -1.5


def test_the_schmidt_rank_is_averaged_over_further_factors():
    torch.manual_seed(0)
    images = torch.randn(2, 3 * 4 * 5, 6)
    expected = []
    for member in images.unflatten(1, (3, 4, 5)):
        grams = [gram_matrix(member[:, :, k].flatten(0, 1).double(), "cosine") for k in range(5)]
        expected.append(torch.stack([effective_rank(schmidt_spectrum(gram, (3, 4)).square()) for gram in grams]).mean())
    assert torch.allclose(schmidt_rank(images, (3, 4, 5)), torch.stack(expected))


def test_a_shorter_run_is_the_beginning_of_a_longer_one():
    """So that it shows what the longer run looked like on its way."""
    specs = [small_spec("cnn", steps=steps) for steps in (3, 12)]
    states = []
    for spec in specs:
        ensemble = Ensemble([spec], torch.device("cpu"))
        state = ensemble.initial()
        for _ in fit(ensemble, state):
            if int(state.step.max()) >= 3:
                break
        states.append(state)
    assert int(states[1].step.max()) == 3
    assert torch.equal(states[0].weights, states[1].weights)


@pytest.mark.integration
def test_the_study_is_trained_measured_judged_and_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(study_module, "SHARES", (0.5, 1.0))
    preset = PAPER.preset_named("quick").changed([*TINY, "steps=8", "factors_steps=8", "prospective_seeds=1"])
    runs = {run.spec.digest: run for run in train(STUDY.specs(preset), store=tmp_path, device="cpu")}
    result = STUDY.measure(STUDY.trials(preset, torch.device("cpu"), runs))
    final = result.sel(share=1.0)
    three = final["value"].sel(setting="three factors", expected="fails", seed=0)
    assert np.isfinite(three.sel(marker="schmidt_rank"))
    assert three.drop_sel(marker="schmidt_rank").isnull().all()
    assert np.isfinite(final["value"].sel(setting="hypernetwork", expected="either")).all()
    assert {test.outcome for test in verdict_of(C35, {"prospective": result}).tests} <= {"not decidable"}
    [figure] = FIGURES
    assert len(figure.draw(result).axes) == 2
    assert ["composing networks, three factors", "0 of 2"] in figure.table(result)
    pyplot.close("all")
