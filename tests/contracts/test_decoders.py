"""What every decoder promises."""

import copy

import pytest
import torch
from torch.func import functional_call, vmap

from tests.small import small_spec

TASKS = {"odd size": {"size": 7}, "three factors": {"size": 8, "brightness": 3}}


@pytest.fixture(params=TASKS.values(), ids=list(TASKS))
def spec(request, decoder):
    return small_spec(decoder, task=request.param)


def inputs_of(spec, count=5):
    return spec.task.examples(spec.task.grid.points[:: spec.task.grid.size // count][:count]).inputs


def test_output_is_an_image_or_a_code(spec):
    outputs = spec.module().eval()(inputs_of(spec))
    target = spec.task.examples(spec.task.grid.points[:5]).targets
    assert outputs.shape == (5, *target.shape[1:])
    assert torch.isfinite(outputs).all()


def test_stages_are_named_and_end_with_the_output(spec):
    module, inputs = spec.module().eval(), inputs_of(spec)
    activations = module.activations(inputs)
    assert tuple(activations) == module.stage_names
    assert module.stage_names[-1] == "output"
    assert len(module.stage_names) >= 2
    assert torch.equal(activations["output"], module(inputs))
    assert all(len(activation) == 5 for activation in activations.values())


def test_reading_stages_leaves_no_trace(spec):
    module, inputs = spec.module().eval(), inputs_of(spec)
    before, names = copy.deepcopy(module.state_dict()), {m: set(vars(m)) for m in module.modules()}
    first, second = module.activations(inputs), module.activations(inputs)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert names == {m: set(vars(m)) for m in module.modules()}


def test_examples_of_a_batch_do_not_meet(spec):
    module, inputs = spec.module().eval(), inputs_of(spec)
    assert torch.allclose(module(inputs)[2:3], module(inputs[2:3]), atol=1e-6)


def test_every_parameter_learns(spec):
    module = spec.module().eval()
    loss = (module(inputs_of(spec)) - 1).square().mean()
    loss.backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().sum() > 0, name


def test_seed_decides_the_weights_and_nothing_else_does(spec):
    torch.manual_seed(1)
    first, state = spec.module().eval().state_dict(), torch.get_rng_state()
    again, other = spec.module().eval().state_dict(), spec.replace(seed=1).module().state_dict()
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_members_can_be_batched(spec):
    modules = [spec.replace(seed=seed).module().eval() for seed in range(3)]
    stacked = {
        n: torch.stack([dict(m.named_parameters())[n] for m in modules]) for n, _ in modules[0].named_parameters()
    }
    inputs = inputs_of(spec)
    together = vmap(lambda weights: functional_call(modules[0], weights, (inputs,)))(stacked)
    alone = torch.stack([module(inputs) for module in modules])
    assert torch.allclose(together, alone, atol=1e-5)
