"""The networks that failing ones are compared with."""

import numpy as np
import pytest
import torch

from recombine.papers.forced_rendering import PAPER as DEFAULT
from recombine.papers.forced_rendering.depth import STEPS, factorization_by_step
from recombine.papers.forced_rendering.samples import FAILING, LOW_RANK_WHOLE, UNPENALISED, WHOLE
from recombine.reproduction.measuring import Batch, stage_profile
from recombine.reproduction.study import initial_runs
from tests.tiny import TINY

STUDY = DEFAULT.studies["controls"]
PAPER = DEFAULT.preset_named("paper")


def arms(preset):
    return {arm.labels[0]: arm.spec for arm in STUDY.arms(preset)}


@pytest.mark.parametrize(("whole", "failing"), [(WHOLE, FAILING), (LOW_RANK_WHOLE, UNPENALISED)])
def test_the_whole_grid_differs_in_the_region_alone(whole, failing):
    own = arms(PAPER)
    task = own[failing].task
    assert own[whole].task == task.replace(region="whole")
    assert torch.equal(own[whole].task.held_out, task.held_out)
    assert own[whole].total_steps == own[failing].total_steps
    assert own[whole].decoder == own[failing].decoder


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


def test_factorization_by_step_goes_from_the_grids_differences_to_the_derivative():
    spec = arms(DEFAULT.preset_named("quick").changed(TINY))[FAILING]
    batch = Batch(initial_runs(spec.seeds([5, 6])), torch.device("cpu"))
    stages, by_step = stage_profile(batch, probes=False, maps=False), factorization_by_step(batch).numpy()
    assert by_step.shape == (*stages["factorization"].shape, len(STEPS))
    np.testing.assert_allclose(by_step[..., 0], stages["factorization_differences"], atol=1e-4)
    errors = abs(by_step - stages["factorization"][..., None]).max(axis=(0, 1))
    assert errors[-1] < errors[0] / 2


def test_records_of_a_specific_test_have_the_versions_of_the_control_study():
    claim, versions = DEFAULT.claims["C4"], {name: own.versions for name, own in DEFAULT.studies.items()}
    described, specific = (claim.record("tests", statement, versions) for statement in claim.statements)
    assert set(described["versions"]) == {"depth"}
    assert set(specific["versions"]) == {"depth", "controls"}
    assert specific["criterion"]["word"] == "specific"
