"""The networks that failing ones are compared with."""

import numpy as np
import pytest
import torch

from recombine.papers import DEFAULT
from recombine.papers.forced_rendering.controls.labels import (
    CONTROLS,
    FAILING,
    INITIAL,
    LOW_RANK_UNTRAINED,
    LOW_RANK_WHOLE,
    PENALISED,
    STRIPED,
    UNPENALISED,
    UNTRAINED,
    WHOLE,
)
from recombine.papers.forced_rendering.depth.statistics import factorization_fall, probe_fall
from recombine.papers.forced_rendering.superposition.statistics import several_peaks, superposed
from recombine.reproduction.measuring import Batch, stage_profile
from recombine.reproduction.study import initial_runs
from recombine.sweep import train
from tests.tiny import TINY

STUDY = DEFAULT.studies["controls"]
PAPER = DEFAULT.preset_named("paper")


def arms(preset):
    return {arm.labels[0]: arm.spec for arm in STUDY.arms(preset)}


def digests(study):
    return {arm.spec.digest for arm in DEFAULT.studies[study].arms(PAPER)}


def test_arms_share_their_runs_with_other_studies():
    own = arms(PAPER)
    assert {own[arm].digest for arm in (FAILING, STRIPED)} <= digests("stripes")
    assert own[FAILING].digest in digests("depth")
    assert {own[arm].digest for arm in (UNPENALISED, PENALISED)} <= digests("penalties")


@pytest.mark.parametrize(("whole", "failing"), [(WHOLE, FAILING), (LOW_RANK_WHOLE, UNPENALISED)])
def test_the_whole_grid_differs_in_the_region_alone(whole, failing):
    own = arms(PAPER)
    task = own[failing].task
    assert own[whole].task == task.replace(region="whole")
    assert torch.equal(own[whole].task.held_out, task.held_out)
    assert own[whole].total_steps == own[failing].total_steps
    assert own[whole].decoder == own[failing].decoder


def test_small_grids_have_all_their_bumps_beside_the_stripes():
    task = arms(DEFAULT.preset_named("quick").changed(["size=8"]))[STRIPED].task
    assert task.training.count(task.grid.size) == int((~task.held_out).sum()) < 100


def test_untrained_networks_have_the_first_weights_of_failing_ones():
    spec = arms(DEFAULT.preset_named("quick").changed(TINY))[FAILING]
    runs = initial_runs(spec.seeds([5, 6]))
    batch = Batch(runs, torch.device("cpu"))
    points = spec.task.grid.points
    codes = spec.task.codes(points).float()
    for run, drawn in zip(runs, batch.outputs(points), strict=True):
        with torch.no_grad():
            torch.testing.assert_close(run.spec.module().eval()(codes), drawn)
    assert batch.scores == {}
    assert not np.array_equal(*stage_profile(batch, maps=False, probes=False)["factorization"][:, -1:])


def test_every_arm_is_measured_and_drawn(tmp_path):
    from matplotlib import pyplot

    preset = DEFAULT.preset_named("quick").changed([*TINY, "seeds=1"])
    runs = {run.key: run for run in train(STUDY.specs(preset), tmp_path, device="cpu")}
    result = STUDY.measure(STUDY.trials(preset, torch.device("cpu"), runs))
    assert set(result["arm"].values) == {arm for failing, others in CONTROLS.items() for arm in (failing, *others)}
    for arm in result["arm"].values:
        own = result.sel(arm=arm)
        assert factorization_fall(own).notnull().all()
        assert probe_fall(own).notnull().all()
        assert bool(own["id_over_blank"].isnull().all()) == (arm in INITIAL)
        assert bool((own["trained"] == 0).all()) == (arm in INITIAL)
        assert superposed(own).notnull().all()
        assert several_peaks(own).notnull().all()
    first = stage_profile(Batch(initial_runs(arms(preset)[FAILING].seeds([0])), torch.device("cpu")), maps=False)
    untrained = result["factorization"].sel(arm=UNTRAINED).isel(seed=0).dropna("stage")
    np.testing.assert_allclose(untrained, first["factorization"][0], rtol=1e-5)
    assert {UNTRAINED, LOW_RANK_UNTRAINED} == set(INITIAL)
    figure = DEFAULT.figures["controls"]
    figure.draw(result).draw_without_rendering()
    assert "nan" not in figure.caption(result)
    assert "untrained" in figure.caption(result)
    pyplot.close("all")
