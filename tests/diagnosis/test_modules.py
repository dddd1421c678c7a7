"""`diagnose` on modules that nobody here wrote, and on our own; nothing is left changed."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import recombine
from recombine.decoders import DECODERS
from recombine.diagnosis import Diagnosis
from recombine.errors import InvalidValue
from recombine.factors import FactorGrid
from recombine.metrics import metric_tensor
from recombine.tasks import BumpTask
from tests.small import small_spec, stage_reader

GRID = "x=0:7,y=0:7"
TASK = BumpTask(size=8, holdout="center:2:5")
TARGETS = TASK.render(TASK.grid.points)


def everything_about(module):
    """What must not change."""
    return (
        copy.deepcopy(module.state_dict()),
        [part.training for part in module.modules()],
        [(len(part._forward_hooks), len(part._forward_pre_hooks)) for part in module.modules()],
        [p.requires_grad for p in module.parameters()],
        [None if p.grad is None else p.grad.clone() for p in module.parameters()],
        torch.get_rng_state(),
    )


def assert_unchanged(before, module):
    after = everything_about(module)
    assert all(torch.equal(before[0][name], value) for name, value in after[0].items())
    assert before[1:4] == after[1:4]
    for a, b in zip(before[4], after[4], strict=True):
        assert (a is None and b is None) or torch.equal(a, b)
    assert torch.equal(before[5], after[5])


class Counting(nn.Module):
    """Changes buffers even in evaluation mode, one of them from nothing, shares a part and builds one."""

    def __init__(self):
        super().__init__()
        self.linear, self.act = nn.Linear(16, 4), nn.ReLU(inplace=True)
        self.blocks = nn.ModuleList([nn.Linear(4, 4), self.act])
        self.register_buffer("calls", torch.zeros(1))
        self.register_buffer("cache", None)
        self.later = None

    def forward(self, codes):
        self.calls += 1
        self.cache = codes
        if self.later is None:
            self.later = nn.Linear(4, 4)
        return self.blocks[1](self.blocks[0](self.act(self.linear(codes)))).sum(dim=1)


def checked(module, **fields):
    before = everything_about(module)
    arguments = {"encode": "bump", "holdout": "center:2:5", **fields}
    result = recombine.diagnose(module, GRID, **arguments)
    assert_unchanged(before, module)
    assert isinstance(result, Diagnosis)
    assert result["stage"].values[0] == "input"
    assert result["stage"].values[-1] == "output"
    assert result["metric"].dims == ("stage", "x", "y", "factor", "other_factor")
    assert np.isfinite(result["metric"].values).all()
    assert len(result.summary().splitlines()) >= len(result["stage"]) + 1
    return result


def test_plain_sequential_in_train_mode_with_everything_awkward():
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(32, 64)
    ).train()
    module(torch.randn(4, 16)).sum().backward()
    result = checked(module, targets=TARGETS)
    assert list(result["stage"].values) == ["input", "0", "1", "2", "3", "output"]
    # an in-place ReLU must not overwrite the stage before it
    assert not np.allclose(result["volume"].sel(stage="1"), result["volume"].sel(stage="2"))
    assert np.allclose(result["volume"].sel(stage="2"), result["volume"].sel(stage="3"))
    assert {"error", "id_error", "ood_error", "superposition", "kernel_agreement"} <= set(result)


@pytest.mark.parametrize("kind", [kind for kind, cls in DECODERS.items() if cls.direction == "decode"])
def test_our_decoders_measure_as_the_metrics_do(kind):
    spec = small_spec(kind, task={"holdout": "center:2:5"})
    module = spec.module().eval()
    result = checked(module)
    reader = stage_reader(module, lambda values: spec.task.codes(values).float())
    direct = metric_tensor(reader, spec.task.grid.points)
    for name in module.stage_names[:-1]:
        if name == "components":  # networks of their own, whose layers are the stages
            continue
        found = result["metric"].sel(stage=f"stages.{name}").values.reshape(64, 2, 2)
        assert np.allclose(found, direct[name].numpy(), rtol=1e-4, atol=1e-6), name
    assert np.allclose(
        result["metric"].sel(stage="output").values.reshape(64, 2, 2), direct["output"].numpy(), atol=1e-6
    )


def test_a_function_may_encode_and_nothing_may_be_held_out():
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    result = recombine.diagnose(module, "a=-1:1:5,b=0:1:4", encode=lambda values: torch.cat([values, values**2], dim=1))
    assert result["metric"].shape == (4, 5, 4, 2, 2)
    assert "probe_held_out" not in result
    assert "kernel_agreement" not in result


def concatenated(values):
    """Fails for a tensor."""
    assert isinstance(values, np.ndarray)
    return np.concatenate([values, np.sin(values)], axis=1)


@pytest.mark.parametrize(
    "encode",
    [concatenated, lambda values: np.hstack([values.numpy(), np.sin(values.numpy())])],
    ids=["arrays only", "an array of a tensor"],
)
def test_a_function_may_encode_in_numpy(encode):
    module, grid = (
        nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)),
        {"a": np.linspace(-1, 1, 5), "b": range(4)},
    )
    in_torch = recombine.diagnose(
        module, "a=-1:1:5,b=0:3", encode=lambda values: torch.cat([values, values.sin()], 1), geometry="differences"
    )
    result = recombine.diagnose(module, grid, encode=encode)
    assert result.attrs["metric"] == "finite differences", "not a derivative of zero"
    np.testing.assert_allclose(result["volume"], in_torch["volume"], rtol=1e-6)
    page = recombine.explore(module, grid, encode=encode)
    assert "precomputed" in page.notes[0]


def test_the_encoder_reads_images():
    spec = small_spec("encoder")
    result = recombine.diagnose(
        spec.module(), GRID, encode=lambda values: spec.task.render(values)[:, None], holdout="center:2:5"
    )
    assert list(result["stage"].values)[1:-1] == ["stages.layer1", "stages.layer2", "stages.hidden"]
    pixels = metric_tensor(lambda values, tap: tap("image", spec.task.render(values)), spec.task.grid.points)["image"]
    assert np.allclose(result["metric"].sel(stage="input").values.reshape(64, 2, 2), pixels.numpy(), atol=1e-5)


def test_differences_on_request():
    exact, rough = (
        recombine.diagnose(small_spec("mlp").module(), GRID, encode="bump", geometry=g) for g in ("auto", "differences")
    )
    assert rough.attrs["metric"] == "finite differences"
    assert not np.allclose(exact["metric"], rough["metric"], rtol=0.05)
    with pytest.raises(InvalidValue, match=r"^geometry"):
        recombine.diagnose(small_spec("mlp").module(), GRID, encode="onehot", geometry="exact")


def test_stateful_modules_with_shared_parts_and_flat_outputs():
    module = Counting()
    calls = module.calls
    result = checked(module)
    assert module.cache is None
    assert module.later is None
    assert module.calls is calls
    assert int(result["features"].sel(stage="output")) == 1


def test_the_grid_survives_a_module_that_works_in_place():
    grid = FactorGrid.parse(GRID)
    before = grid.points.clone()
    recombine.diagnose(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(2, 3).double()), grid)
    assert torch.equal(grid.points, before)


class Superposer(nn.Module):
    """Draws at a held-out place every kept bump that shares x or y; or, as a composer, the bump."""

    def __init__(self, task, composes):
        super().__init__()
        points, held = task.grid.points, task.held_out
        drawn = task.render(points).flatten(1)
        if not composes:
            shares = (points[:, None, :] == points[None, ~held]).any(dim=-1).double()
            drawn[held] = shares[held] @ drawn[~held]
        self.register_buffer("drawn", drawn.float())
        self.register_buffer("codes", task.codes(points).float())

    def forward(self, codes):
        return self.drawn[torch.cdist(codes, self.codes).argmin(dim=1)]


def test_a_superposer_and_a_composer_are_distinct_texts():
    task = BumpTask(size=14)
    truth = task.render(task.grid.points)
    guilty, honest = (
        recombine.diagnose(
            Superposer(task, composes), task.grid, encode="bump", holdout=task.held_out, targets=truth,
            geometry="differences",
        )
        for composes in (False, True)
    )  # fmt: skip
    assert guilty["superposition"].sel(prediction="memorised") > 0.99
    assert guilty["superposition"].sel(prediction="truth") < 0.1
    assert honest["superposition"].sel(prediction="memorised") < 0.05
    assert honest["superposition"].sel(prediction="truth") > 0.99
    assert guilty["ood_error"] > 0.01
    assert honest["ood_error"] < 1e-9
    for result, wins in ((guilty, True), (honest, False)):
        agreement = result["kernel_agreement"]
        assert (agreement.sel(kernel="binary") > agreement.sel(kernel="gaussian_radial")).item() is wins


def test_superposition_needs_no_targets():
    result = recombine.diagnose(small_spec("mlp").module(), GRID, encode="bump", holdout="center:2:5", stages=[])
    assert set(result["prediction"].values) == {"memorised", "memorised_null", "averaged", "averaged_null"}
    plain = recombine.diagnose(nn.Linear(2, 5), GRID, holdout="center:2:5")
    assert set(plain["prediction"].values) == {"memorised", "memorised_null"}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"stages": ["layer7"]}, "stages"),
        ({"encode": "braille"}, "encoding"),
        ({"encode": "rate"}, "module"),
        ({"holdout": np.zeros((3, 3), dtype=bool)}, "holdout"),
        ({"holdout": np.zeros((8, 8))}, "holdout"),
        ({"holdout": np.ones((8, 8), dtype=bool)}, "holdout"),
        ({"targets": torch.zeros(5, 8, 8)}, "targets"),
        ({"targets": torch.zeros(64, 1)}, "targets"),
        ({"encode": lambda values: torch.full((len(values), 16), torch.nan)}, "encode"),
        ({"encode": lambda values: [[1.0] * 16]}, "encode"),
        ({"encode": lambda values: "code"}, "encode"),
    ],
)
def test_what_would_mislead_is_refused_and_nothing_is_left_changed(fields, field):
    module = small_spec("mlp").module()
    before = everything_about(module)
    with pytest.raises(InvalidValue) as caught:
        recombine.diagnose(module, GRID, **{"encode": "bump", **fields})
    assert caught.value.field == field
    assert_unchanged(before, module)


@pytest.mark.parametrize("text", ["x", "x=0:a", "x=3:1", "x=0:3,x=0:3", "0x=0:3", "x=0:3:2:1", "x=0:inf", "x=0:2.5"])
def test_bad_grids(text):
    with pytest.raises(InvalidValue):
        FactorGrid.parse(text)


def test_grid_text():
    forms = FactorGrid.parse("angle=0:350:36,shape=0:2:category,hue=0:5:angle,far=0:900:10")
    assert [factor.form for factor in forms.factors] == ["angle", "category", "angle", "number"]
    for text in ("size=0.5;0.7;1", "x=0:27:28"):
        (factor,) = FactorGrid.parse(text).factors
        assert f"{factor.name}={factor.text}" == text
    named = FactorGrid.of(
        {"shape": ["b", "a"], "angle": range(0, 360, 90), "y": torch.tensor([1.0, 3.0, 4.0]), "z": "0:3"}
    )
    assert [factor.form for factor in named.factors] == ["category", "angle", "number", "number"]
    assert named.factors[0].labels == ("b", "a")
    assert named.factors[2].given == (1, 3, 4)
    assert FactorGrid.of({"x": np.linspace(0.1, 0.7, 9)}) == FactorGrid.parse("x=0.1:0.7:9")
    for wrong in ({"x": ["a", "a"]}, {"x": [2, 1]}, {"x": []}, 3, None):
        with pytest.raises(InvalidValue):
            FactorGrid.of(wrong)
    grid = FactorGrid.parse("x=0:27, b=0.25:1:4")
    assert grid.shape == (28, 4)
    assert grid.names == ("x", "b")
