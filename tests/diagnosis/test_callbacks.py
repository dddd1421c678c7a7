"""The diagnosis during training: the same numbers as `diagnose`, and not a bit of the training changes."""

import random
import sys
import types

import numpy as np
import pytest
import torch
from torch import nn

import recombine as rc
from recombine.diagnosis import callbacks
from recombine.diagnosis.running import undisturbed, unwrapped
from recombine.errors import InvalidValue, RecombineError

TASK = rc.BumpTask(size=6, holdout="center:2:4")
TARGETS = TASK.render(TASK.grid.points)
SETTINGS = {"encode": "bump", "holdout": TASK.holdout, "targets": TARGETS}
QUICK = {**SETTINGS, "metrics": ["ood_error", "partial_factorization"]}


class Network(nn.Module):
    """Has all that a measurement might disturb: dropout, batch statistics, a hook, a frozen layer, drawn numbers."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.2))
        self.head = nn.Linear(16, 36)
        self.body[0].bias.requires_grad_(False)
        self.body[2].eval()
        self.hook = self.body[0].register_forward_hook(lambda part, inputs, output: output + 0.0)

    def forward(self, codes):
        return self.head(self.body(codes)).unflatten(1, (6, 6))


def trained(callback=None, steps=7):
    """A network trained for a few steps, and what torch's and numpy's random generators give after it."""
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    module = Network()
    optimizer = torch.optim.AdamW([own for own in module.parameters() if own.requires_grad], lr=0.01)
    inputs, images = TASK.examples(TASK.grid.points[~TASK.held_out])
    for step in range(steps):
        rows = torch.randperm(len(inputs))[:16]
        optimizer.zero_grad()
        (module(inputs[rows]) - images[rows]).square().mean().backward()
        if callback is not None:
            callback(module, step)  # between gradient and step, where a trace of it would matter most
        optimizer.step()
    return module, (torch.rand(3).tolist(), np.random.random())  # noqa: NPY002


def test_training_is_the_same_to_the_bit():
    callback = rc.DiagnosisCallback("x=0:5,y=0:5", every=3, **SETTINGS)
    alone, drawn = trained()
    module, drawn_with = trained(callback)
    assert len(callback.measured) == 3
    assert drawn_with == drawn
    for (name, before), after in zip(alone.state_dict().items(), module.state_dict().values(), strict=True):
        assert torch.equal(before, after), name
    for (name, before), after in zip(alone.named_parameters(), module.parameters(), strict=True):
        assert before.requires_grad == after.requires_grad, name
        assert (before.grad is None) == (after.grad is None), name
        assert before.grad is None or torch.equal(before.grad, after.grad), name
    assert [part.training for part in alone.modules()] == [part.training for part in module.modules()]
    assert [len(part._forward_hooks) for part in alone.modules()] == [
        len(part._forward_hooks) for part in module.modules()
    ]


def test_what_a_module_draws_is_given_back():
    """Python's generator by itself, since the type checker of the tests draws from it as well."""
    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    with undisturbed(Network()):
        random.random(), np.random.random()  # noqa: NPY002
        assert random.getstate() != before[0]
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002


def test_the_numbers_are_those_of_diagnose():
    module, _ = trained()
    callback = rc.DiagnosisCallback("x=0:5,y=0:5", **SETTINGS)
    numbers = callback(module)
    whole = rc.diagnose(module, "x=0:5,y=0:5", **SETTINGS)
    assert set(callbacks.USUAL) == {name.removeprefix("diagnosis/").split("/")[0] for name in numbers}
    assert numbers["diagnosis/ood_error"] == float(whole["ood_error"])
    for name in ("factorization_mean", "partial_factorization", "log_volume_std"):
        for stage in whole["stage"].values:
            value = float(whole[name].sel(stage=stage))
            assert numbers[f"diagnosis/{name}/{stage}"] == pytest.approx(value, rel=1e-6, nan_ok=True)


def test_history_and_dataset_have_a_row_per_measurement():
    logged = []
    callback = rc.DiagnosisCallback(
        TASK.grid, every=3, log=lambda numbers, step: logged.append((step, numbers)), prefix="", **QUICK
    )
    assert callback.history.empty
    assert callback.dataset.sizes == {"step": 0}
    trained(callback)
    assert callback.history.index.tolist() == [0, 3, 6] == [step for step, _ in logged]
    assert callback.history.to_dict("records") == [numbers for _, numbers in logged]
    dataset = callback.dataset
    assert dataset["step"].values.tolist() == [0, 3, 6]
    assert dataset["ood_error"].dims == ("step",)
    assert dataset["partial_factorization"].dims == ("step", "stage")
    last = dataset["partial_factorization"].sel(step=6, stage="output")
    assert float(last) == logged[-1][1]["partial_factorization/output"]


def test_only_what_is_logged_is_computed(monkeypatch):
    """A number that needs no metric tensor takes no derivative."""
    from recombine.diagnosis import diagnosing

    monkeypatch.setattr(diagnosing, "exact_geometry", None)
    result = rc.diagnose(Network(), TASK.grid, **QUICK)
    assert {"id_error", "ood_error", "partial_factorization"} <= set(result.data_vars)
    assert not {"kernel_agreement", "superposition", "factorization", "probe_in_sample"} & set(result.data_vars)


def test_wrapped_modules_are_measured_themselves():
    module = Network().eval()
    expected = rc.DiagnosisCallback(TASK.grid, **QUICK)(module)
    compiled = torch.compile(nn.DataParallel(module), backend="eager")
    assert unwrapped(compiled) is module
    assert rc.DiagnosisCallback(TASK.grid, **QUICK)(compiled) == expected


def test_distributed_training_measures_in_the_first_process(tmp_path, monkeypatch):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'group'}", rank=0, world_size=1)
    try:
        module = Network().eval()
        wrapped = nn.parallel.DistributedDataParallel(module)
        assert unwrapped(wrapped) is module
        callback = rc.DiagnosisCallback(TASK.grid, **QUICK)
        assert callback(wrapped) == rc.DiagnosisCallback(TASK.grid, **QUICK)(module)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
        assert callback(wrapped) is None
        assert len(callback.measured) == 1
    finally:
        torch.distributed.destroy_process_group()


def test_sharded_weights_are_refused():
    class DTensor(nn.Parameter):
        """Named as the weights of `fully_shard` are."""

    module = nn.Linear(12, 3)
    module.weight = DTensor(module.weight.detach())
    with pytest.raises(InvalidValue, match=r"^module.*not sharded"):
        rc.diagnose(module, TASK.grid, encode="bump")


@pytest.mark.parametrize(
    "given", [{"every": 0}, {"metrics": ["ood_eror"]}, {"thorough": ["x"]}, {"hold_out": "center"}]
)
def test_mistakes_show_before_training(given):
    with pytest.raises((InvalidValue, TypeError)):
        rc.DiagnosisCallback(TASK.grid, **given)


def test_a_number_that_cannot_be_measured_is_refused_by_name_only():
    usual = rc.DiagnosisCallback("x=0:5,y=0:5", encode="bump")(Network())
    assert {name.split("/")[1] for name in usual} == {"factorization_mean", "partial_factorization", "log_volume_std"}
    for name, needed in (("ood_error", "targets"), ("factorization_held", "hold-out")):
        with pytest.raises(InvalidValue, match=f"^metrics.*{needed}"):
            rc.DiagnosisCallback("x=0:5,y=0:5", encode="bump", metrics=[name])(Network())


# -- Lightning ------------------------------------------------------------------------------------------------------


@pytest.fixture
def fake_lightning(monkeypatch):
    """A library with nothing but the class that callbacks derive from."""
    package, pytorch = types.ModuleType("lightning"), types.ModuleType("lightning.pytorch")
    pytorch.Callback = type("Callback", (), {})
    package.pytorch = pytorch
    monkeypatch.setitem(sys.modules, "lightning", package)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", pytorch)
    callbacks._lightning_class.cache_clear()
    yield pytorch
    callbacks._lightning_class.cache_clear()


class FakeLightningModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.decoder, self.logged = Network(), []

    def log_dict(self, numbers, *, rank_zero_only):
        assert rank_zero_only
        self.logged.append(numbers)


def test_hooks_of_lightning_call_it(fake_lightning):
    callback = rc.DiagnosisCallback(TASK.grid, every=2, **QUICK)
    by_epoch, by_step = callback.lightning("decoder"), callback.lightning("decoder", each="step")
    assert isinstance(by_epoch, fake_lightning.Callback)
    module = FakeLightningModule()
    for epoch in range(3):
        trainer = types.SimpleNamespace(current_epoch=epoch, global_step=10 * epoch + 9)
        by_epoch.on_train_batch_end(trainer, module, None, None, 0)
        by_epoch.on_train_epoch_end(trainer, module)
    assert [step for step, _ in callback.measured] == [0, 2]
    assert [set(numbers) >= {"diagnosis/ood_error"} for numbers in module.logged] == [True, True]
    trainer.global_step = 4
    by_step.on_train_epoch_end(trainer, module)
    by_step.on_train_batch_end(trainer, module, None, None, 0)
    assert callback.measured[-1][0] == 4


def test_without_lightning_one_line_says_what_to_install(monkeypatch):
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RecombineError, match="pip install lightning"):
        rc.DiagnosisCallback(TASK.grid, **QUICK).lightning()


def test_a_single_metric_may_be_a_string():
    callback = rc.DiagnosisCallback(TASK.grid, **{**SETTINGS, "metrics": "ood_error"})
    assert list(callback(Network())) == ["diagnosis/ood_error"]


@pytest.mark.parametrize("thorough", [True, ["braille"], "braille"])
def test_thorough_is_refused_beside_metrics(thorough):
    with pytest.raises(InvalidValue, match=r"^thorough must be omitted"):
        rc.diagnose(Network(), TASK.grid, **QUICK, thorough=thorough)
