"""What the encodings, attention and encoder studies measure beside run scores: known answers."""

import numpy as np
import pytest
import torch

from recombine.decoders import CNN, CoordinateMLP, Transformer
from recombine.decoders.base import Interface
from recombine.papers.forced_rendering.attention import SAME_OPERATIONS, SAME_PARAMETERS, costs, matched
from recombine.papers.forced_rendering.scores import errors_by_distance
from recombine.tasks import BumpTask

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
