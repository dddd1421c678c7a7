"""The networks that failing ones are compared with."""

import pytest
import torch

from recombine.papers.forced_rendering import PAPER as DEFAULT
from recombine.papers.forced_rendering.samples import FAILING, LOW_RANK_WHOLE, UNPENALISED, WHOLE
from recombine.reproduction.measuring import Batch
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
