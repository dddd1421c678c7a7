"""What the encodings, attention and encoder studies measure beside run scores: known answers."""

import numpy as np
import pytest
import torch

from recombine.decoders import CNN, CoordinateMLP, Transformer
from recombine.decoders.base import Interface
from recombine.papers.forced_rendering import PAPER
from recombine.papers.forced_rendering.attention import SAME_OPERATIONS, SAME_PARAMETERS, costs, matched
from recombine.papers.forced_rendering.depth import CLAIMS, RAMP
from recombine.papers.forced_rendering.holdouts import BOTTOM_LEFT, SHAPE, bottom_left
from recombine.papers.forced_rendering.scores import errors_by_distance
from recombine.tasks import BumpTask
from tests.papers.forced_rendering.planted_stages import line, planted

INTERFACE = Interface((10, 10), (10, 10))


class Stored:
    """A batch of two networks with an error that grows with the distance from the kept region."""

    task = BumpTask(size=14, holdout="center")

    def __init__(self):
        from recombine.metrics import distance_inside

        distance = distance_inside(self.task.held_out, self.task.grid.shape).numpy()
        self.arrays = {
            "error": np.stack([distance, 2 * distance]), "blank": np.full((2, len(distance)), 4.0),
            "hit": np.stack([distance < 2, distance < 3]).astype(float),
        }  # fmt: skip

    def stored(self, name):
        return self.arrays[name]


def test_errors_by_distance():
    found = errors_by_distance(Stored())
    np.testing.assert_allclose(found["distance_mse"], [[1, 2, 3, 4], [2, 4, 6, 8]])
    np.testing.assert_allclose(found["distance_over_blank"][0], [0.25, 0.5, 0.75, 1.0])
    np.testing.assert_allclose(found["distance_accuracy"], [[1, 0, 0, 0], [1, 1, 0, 0]])
    # interior of 8 × 8: the 2 × 2 points that are 4 steps from the kept ones, with 3 px between
    np.testing.assert_allclose(found["interior_mse"], [4, 8])
    np.testing.assert_allclose(found["interior_accuracy"], [0, 0])


@pytest.mark.parametrize("cost", [SAME_PARAMETERS, SAME_OPERATIONS])
@pytest.mark.parametrize("decoder", [lambda width: CoordinateMLP(width=width),
                                     lambda width: Transformer(width=width, depth=1, feedforward=4 * width)],
                         ids=["coordinate", "transformer"])  # fmt: skip
def test_matched_widths_are_nearest(decoder, cost):
    other = CNN(width=6, depth=2)
    width, target = matched(decoder, other, INTERFACE, cost), costs(other, INTERFACE)[cost]
    gaps = {w: abs(costs(decoder(w), INTERFACE)[cost] - target) for w in (width - 4, width, width + 4) if w}
    assert gaps[width] == min(gaps.values())  # counts grow with the width


def test_a_readout_of_features_that_are_factors_is_exact(tmp_path):
    """Untrained encoders have a hidden stage too: errors are those of ridge on halves, by hand."""
    from recombine.decoders import ConvEncoder
    from recombine.papers.forced_rendering.encoder import readout_errors
    from recombine.reproduction.measuring import Batch
    from recombine.reproduction.study import initial_runs
    from recombine.specs import RunSpec

    task = BumpTask(size=10, direction="encode")
    spec = RunSpec(task=task, decoder=ConvEncoder(channels=(4, 8), hidden=16))
    runs = initial_runs(spec.seeds(range(2)))
    found = readout_errors(Batch(runs, torch.device("cpu")))
    assert found["readout_kept"].shape == found["readout_held"].shape == (2,)
    module, points, held = runs[1].module(), task.grid.points, task.held_out
    hidden = dict(module.walk(task.examples(points).inputs))["hidden"].detach().double().numpy()
    black = (task.grid.indices.sum(dim=1) % 2 == 0).numpy()
    errors = []
    for half in (black, ~black):
        fit = half & ~held.numpy()
        centre, mean = hidden[fit].mean(0), points.numpy()[fit].mean(0)
        x, y = hidden[fit] - centre, points.numpy()[fit] - mean
        damping = 1e-3 * (x**2).sum(1).mean() + 1e-10 * (x**2).sum()
        weights = np.linalg.solve(x.T @ x + damping * np.eye(x.shape[1]), x.T @ y)
        error = ((hidden - centre) @ weights + mean - points.numpy()) ** 2
        errors.append((error[~half & ~held.numpy()].mean(), error[held.numpy()].mean()))
    kept, held_error = np.mean(errors, axis=0)
    assert found["readout_kept"][1].item() == pytest.approx(kept, rel=1e-4)
    assert found["readout_held"][1].item() == pytest.approx(held_error, rel=1e-4)


def test_the_bottom_left_corner_is_as_large_as_the_box_and_lies_at_small_x_and_large_y():
    task = BumpTask(size=28)
    corner = BumpTask(size=28, holdout=bottom_left(task))
    held = corner.held_out.reshape(28, 28)  # [x, y], with y downwards in the image
    assert held.sum() == task.held_out.sum() == 17**2
    assert held[:17, 11:].all()
    kept = corner.grid.points[~corner.held_out]
    assert [len(kept[:, k].unique()) for k in range(2)] == [28, 28]  # every value is in the training set
    arms = {arm.labels: arm.spec for arm in PAPER.studies["holdouts"].arms(PAPER.preset_named("paper"))}
    assert arms[SHAPE, 28, BOTTOM_LEFT].task.held_out.equal(corner.held_out)


def test_ramp_codes_are_alternatives_in_claims_on_depth():
    names = (
        "probe_held_out", "factorization", "factorization_differences", "factorization_of_means", "spread",
        "spread_excess", "cross_term", "cross_term_held",
    )  # fmt: skip
    labels = {"encoding": ("bump", "rate", RAMP), "depth": (2, 4)}
    curves = dict.fromkeys(names, lambda code, depth: line(1.0, 0.5, depth + 2))
    data = {"depth": planted(labels, curves, compared=[2, 4], shown=4)}
    for claim in CLAIMS:
        for statement in claim.statements:
            assert not [case for case in statement.cases(data) if RAMP in case]
    by_name = {claim.name: claim for claim in CLAIMS}
    assert {"ramp", "ramp, depth 2"} <= set(by_name["C4"].statements[0].alternatives(data))
