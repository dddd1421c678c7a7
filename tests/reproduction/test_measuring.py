"""Batches of runs: the same numbers together and alone, whatever the memory."""

import numpy as np
import pytest
import torch

from recombine.errors import InvalidValue
from recombine.reproduction.measuring import (
    Batch,
    drawings,
    fitting_runs,
    grid_maps,
    stage_dims,
    stage_profile,
    tabulate,
)
from recombine.reproduction.study import Trials
from recombine.sweep import train
from tests.papers.forced_rendering.test_studies import QUICK, Ended
from tests.small import small_spec

CPU = torch.device("cpu")
LITTLE, MUCH = 1 << 16, 1 << 30
"""Bytes: a few points at a time, and all of them."""
DECODERS = {"cnn": "bump", "mlp": "rate", "low_rank": "onehot", "transformer": "bump", "coordinate": "bump"}
"""By decoder, the code that it reads."""


@pytest.fixture(scope="module")
def runs_of(tmp_path_factory):
    """Three trained networks of any kind."""
    folder = tmp_path_factory.mktemp("store")

    def trained(kind):
        spec = small_spec(kind, task={"holdout": "center:2:5", "encoding": DECODERS[kind]})
        return train(spec.seeds(range(3)), folder, device="cpu")

    return trained


def measured(batch):
    return {**stage_profile(batch), "drawing": drawings(batch).numpy(), "error": grid_maps(batch, "error")}


def assert_same(found, expected):
    """Within rounding, which probes of nearly equal activations enlarge."""
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        rounding = 1e-3 if name.startswith("probe") else 1e-4
        np.testing.assert_allclose(found[name], values, rtol=rounding, atol=rounding / 5, err_msg=name)


@pytest.mark.parametrize(
    "kind",
    ["mlp", "low_rank", "coordinate", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("cnn", "transformer"))],
)
def test_three_runs_in_little_memory_measure_as_each_alone(kind, runs_of):
    runs = runs_of(kind)
    together, alone = measured(Batch(runs, CPU, LITTLE)), [measured(Batch([run], CPU, MUCH)) for run in runs]
    assert_same(together, {name: np.concatenate([one[name] for one in alone]) for name in together})
    assert not np.allclose(together["drawing"][0], together["drawing"][1])  # so an exchange would be seen


@pytest.mark.parametrize("kind", DECODERS)
def test_outputs_are_those_of_the_networks_themselves(kind, runs_of):
    batch = Batch(runs_of(kind), CPU)
    points = batch.task.grid.points
    with torch.no_grad():
        expected = torch.stack([run.module()(batch.task.examples(points).inputs) for run in batch.runs])
    torch.testing.assert_close(batch.outputs(points), expected, rtol=1e-4, atol=1e-6)
    stored = ((expected - batch.task.render(points).float()) ** 2).mean(dim=(-2, -1))
    np.testing.assert_allclose(batch.stored("error"), stored, rtol=1e-3)
    assert batch.scores["ood_mse"].tolist() == [run.scores["ood_mse"] for run in batch.runs]


def test_one_run_alone_has_the_bits_of_its_module(runs_of):
    (run,) = runs_of("cnn")[:1]
    batch = Batch([run], CPU)
    points = batch.task.grid.points
    with torch.no_grad():
        assert torch.equal(batch.outputs(points)[0], run.module()(batch.task.examples(points).inputs))


def test_a_diverged_run_leaves_nan_and_its_neighbours_as_they_are(runs_of):
    runs = runs_of("cnn")
    lost = [runs[0], Ended(runs[1].key, runs[1].path, "diverged"), runs[2]]
    whole, gap = (
        tabulate(Trials(QUICK, CPU, {("cnn",): own}), ("arm",), stage_profile, stage_dims()) for own in (runs, lost)
    )
    assert gap["factorization"].isel(seed=1).isnull().all()
    for name in whole:
        np.testing.assert_array_equal(gap[name].isel(seed=[0, 2]), whole[name].isel(seed=[0, 2]), err_msg=str(name))


def test_what_would_be_assigned_to_the_wrong_run_is_refused(runs_of):
    trials = Trials(QUICK, CPU, {("cnn",): runs_of("cnn")})
    with pytest.raises(InvalidValue, match="one row for each of 1 runs"):
        tabulate(trials, ("arm",), lambda batch: {"score": np.ones(2)})
    with pytest.raises(InvalidValue, match="specs differ only in the seed"):
        Batch([runs_of("cnn")[0], runs_of("mlp")[0]], CPU)


def test_as_many_runs_fit_as_memory_allows():
    spec = small_spec("mlp")  # 64 points; the largest stage is the output, of 64 pixels
    each = 64 * (28 * 64 + 8 * 8 * 64)
    assert fitting_runs(spec, 5 * each) == 5
    assert fitting_runs(spec, 5 * each - 1) == 4
    assert fitting_runs(spec, 1) == 1
    assert fitting_runs(small_spec("encoder"), 1 << 30) > 1
