"""The engine against slow, obvious training, and against itself in other company."""

import contextlib
import math
from typing import Literal

import pytest
import torch
from torch import nn
from torch.nn.functional import nll_loss

from recombine import kernels
from recombine.decoders import CNN, DECODERS, DecoderSpec, DenoisingDecoder, StagedDecoder
from recombine.decoders.base import ToImage
from recombine.errors import InvalidValue
from recombine.specs import Recipe, RunSpec
from recombine.streams import stream, stream_seed
from recombine.tasks import BumpsTask
from recombine.training import Ensemble, State, fit
from recombine.training.adamw import adamw_update
from recombine.training.fit import Stepper
from recombine.training.objective import Batch, denoising
from tests.small import small_spec

CPU = torch.device("cpu")
OURS = [name for name in DECODERS if DECODERS[name].__module__.startswith("recombine.decoders.")]
KINDS = [*OURS, pytest.param(CNN(width=16, depth=2), id="cnn16"), pytest.param(CNN(width=32, depth=2), id="cnn32")]
"""Every decoder; the paper's also at widths that have kernels of their own."""


def trained(specs, steps=None):
    """The ensemble and its state after training, or after at least some steps."""
    ensemble = Ensemble(specs, CPU)
    state = ensemble.initial()
    for _ in fit(ensemble, state):
        if steps is not None and int(state.step.max()) >= steps:
            break
    return ensemble, state


def plainly_trained(spec):
    """The same run as anyone would write it: a module, an optimiser, a loop."""
    module = spec.module()
    recipe, task = spec.recipe, spec.task
    optimiser = torch.optim.AdamW(
        module.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay,
        betas=(recipe.beta1, recipe.beta2), eps=recipe.epsilon,
    )  # fmt: skip
    values = task.training_values(spec.seed)
    inputs, targets = task.examples(values)
    errors, epoch = [], 0
    while len(errors) < recipe.steps:
        order = torch.randperm(len(values), generator=stream(spec.seed, "order", epoch))
        for rows in order.split(recipe.batch):
            if len(errors) == recipe.steps:
                break
            optimiser.zero_grad()
            optimiser.param_groups[0]["lr"] = recipe.lr / 10 ** sum(
                len(errors) >= share * recipe.steps for share in recipe.lr_drops
            )
            fall = (1 + math.cos(math.pi * len(errors) / recipe.steps)) / 2
            optimiser.param_groups[0]["lr"] *= recipe.lr_end + (1 - recipe.lr_end) * fall
            noisy = ()
            if isinstance(module, DenoisingDecoder):
                own = torch.tensor(stream_seed(spec.seed, "penalties")), torch.tensor(len(errors))
                noisy = denoising(Batch(None, targets[rows], None, *own, {}, None))
            outputs = module(inputs[rows], *noisy)
            difference = outputs - targets[rows]
            error = difference.square().mean()
            if recipe.loss == "cross_entropy":
                error = nll_loss(outputs.flatten(1).log(), targets[rows].flatten(1).argmax(dim=1))
            loss = error + recipe.absolute * difference.abs().mean()
            for penalty in spec.penalties:
                loss = loss + penalty.weight * penalty.loss(module, inputs[rows], task.code_sizes, None)
            loss.backward()
            optimiser.step()
            errors.append(error.item())
        epoch += 1
    return module, errors


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "dropout"])
def test_engine_trains_as_a_plain_loop_does(kind):
    spec = small_spec(kind, seed=3, steps=4, absolute=0.1, lr=2e-3)
    module, errors = plainly_trained(spec)
    ensemble, state = trained([spec])
    named = ensemble.named_weights(state, 0)
    assert set(named) == set(dict(module.named_parameters()))
    inputs = spec.task.examples(spec.task.grid.points).inputs
    assert torch.allclose(ensemble.outputs(state, 0, inputs), module(inputs), atol=1e-4)
    for name, parameter in module.named_parameters():
        if not name.endswith("mix.bias"):  # a key's bias has no gradient but rounding, which AdamW blows up
            assert torch.allclose(named[name], parameter, atol=1e-4), name
    assert torch.allclose(state.errors[0], torch.tensor(errors), rtol=1e-4)
    assert int(state.step[0]) == spec.recipe.steps


class Classifier(DecoderSpec):
    """A linear layer and, unless the probabilities are wanted raw, a softmax over pixels."""

    kind: Literal["classifier"] = "classifier"
    softmax: bool = True

    def build(self, interface):
        layers = [nn.Linear(interface.code_size, interface.pixels), nn.Softmax(dim=1) if self.softmax else nn.ReLU()]
        return StagedDecoder({"output": nn.Sequential(*layers, ToImage(interface.image_shape))})


PIXEL = BumpsTask(factors=("x=6", "y=6"), fixed=("size=0.1",), size=6, training="each", encoding="onehot")
CLASSIFIED = RunSpec(
    task=PIXEL,
    decoder=Classifier(),
    recipe=Recipe(steps=9, lr=0.1, loss="cross_entropy", lr_drops=(0.3, 0.7), lr_end=0.2),
)


def test_cross_entropy_and_a_falling_learning_rate_are_those_of_a_plain_loop():
    module, errors = plainly_trained(CLASSIFIED)
    ensemble, state = trained([CLASSIFIED, CLASSIFIED.replace(seed=1)])
    assert torch.allclose(state.errors[0], torch.tensor(errors), rtol=1e-4)
    for name, parameter in module.named_parameters():
        assert torch.allclose(ensemble.named_weights(state, 0)[name], parameter, atol=1e-4), name
    without = trained([CLASSIFIED.replace(recipe=CLASSIFIED.recipe.replace(lr_drops=()))])[1]
    assert torch.equal(state.errors[0][:3], without.errors[0][:3])
    assert not torch.equal(state.errors[0][4:], without.errors[0][4:])
    many = ensemble.objective.member_losses(state.weights, _batch_of(ensemble, state))
    one = ensemble.objective.loss(state.weights[1], _batch_of(ensemble, state, 1))
    assert torch.allclose(many.total[1], one.total)


def _batch_of(ensemble, state, member=slice(None)):
    rows = torch.arange(4).expand(2, -1)[member]
    shares = torch.full((2, 4), 0.25)[member]
    return ensemble._batch(rows, shares, state.step[member], state.buffers[member], member)


def test_cross_entropy_needs_probabilities():
    with pytest.raises(InvalidValue, match=r"loss must be squared_error, since .* sum to 1, got 'cross_entropy'"):
        Ensemble([CLASSIFIED.replace(decoder=Classifier(softmax=False))], CPU)


@pytest.mark.parametrize("kind", KINDS)
def test_member_ends_as_its_solo_run_bit_for_bit_also_after_a_stop(kind):
    """Members that differ in seed, rates, penalties, training set and its size, and length."""
    first = small_spec(kind, steps=5)
    penalties = ("entropy:0.3", "variance:0") if first.penalties else ()
    task = {"training": "draws:23", "sigma": 1.5, "holdout": "corner", "polarity": "dark"}
    rates = {"lr": 5e-3, "weight_decay": 0.5, "absolute": 0.2}
    specs = [first, small_spec(kind, seed=1, task=task, penalties=penalties, epochs=2, **rates)]
    together, whole = trained(specs)
    for index, spec in enumerate(specs):
        alone, solo = trained([spec])
        assert torch.equal(whole.weights[index], solo.weights[0])
        assert torch.equal(whole.errors[index], solo.errors[0])
        assert together.totals[index] == alone.totals[0] == int(whole.step[index])
    assert not torch.allclose(whole.weights[0], whole.weights[1], atol=1e-4)
    _, state = trained(specs, steps=2)
    assert 0 < int(state.step[0]) < first.recipe.steps
    resumed = State.stack([state.member(index) for index in range(2)], CPU)
    for _ in fit(Ensemble(specs, CPU), resumed):
        pass
    assert torch.equal(resumed.weights, whole.weights)
    assert all(torch.equal(a, b) for a, b in zip(resumed.errors, whole.errors, strict=True))


def test_members_may_resume_from_different_steps():
    specs = [small_spec("mlp", seed=seed) for seed in range(2)]
    _, whole = trained(specs)
    _, early = trained(specs[:1], steps=1)
    _, late = trained(specs[1:], steps=6)
    assert int(early.step[0]) != int(late.step[0])
    state = State.stack([early.member(0), late.member(0)], CPU)
    for _ in fit(Ensemble(specs, CPU), state):
        pass
    assert torch.equal(state.weights, whole.weights)


def test_a_diverged_member_stays_where_it_was_while_others_go_on():
    wild, calm = small_spec("mlp", lr=1e18, steps=40), small_spec("mlp", steps=40)
    ensemble = Ensemble([wild, calm], CPU)
    state = ensemble.initial()
    stepper = Stepper(ensemble, state)
    while bool(state.alive[0]):
        stepper.advance(1)
    before = {name: part.clone() for name, part in state.member(0).items()}
    seen = int(state.step[1])
    stepper.advance(10)
    assert int(state.step[1]) == seen + 10
    for name, part in state.member(0).items():
        assert (
            torch.equal(part.nan_to_num(7.0), before[name].nan_to_num(7.0))
            if part.is_floating_point()
            else torch.equal(part, before[name])
        ), name


@pytest.mark.parametrize("way", [contextlib.nullcontext, kernels.without], ids=["kernels", "torch"])
def test_an_inactive_member_keeps_every_bit_even_if_not_finite(way):
    weights = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    mean = torch.tensor([[torch.inf, 0.0], [0.1, 0.1]])
    square = torch.tensor([[torch.inf, 0.0], [0.1, 0.1]])
    step, active = torch.tensor([3, 3]), torch.tensor([False, True])
    kept = weights[0].clone(), mean[0].clone(), square[0].clone()
    gradient = torch.full((2, 2), torch.nan).index_fill(0, torch.tensor([1]), 0.5)
    with way():
        adamw_update(
            weights, mean, square, step, gradient, active, lr=torch.tensor([0.1, 0.1]),
            weight_decay=torch.tensor([0.1, 0.1]), beta1=0.9, beta2=0.99, epsilon=1e-8,
        )  # fmt: skip
    assert torch.equal(weights[0], kept[0])
    assert torch.equal(mean[0], kept[1])
    assert torch.equal(square[0], kept[2])
    assert step.tolist() == [3, 4]
    assert torch.isfinite(weights[1]).all()


def test_epochs_cover_the_training_set_once_each():
    spec = small_spec("mlp", epochs=3, task={"training": "draws:45"})
    ensemble = Ensemble([spec], CPU)
    schedule = ensemble.schedules[0]
    assert schedule.steps_per_epoch == 3
    assert schedule.total == 9
    from recombine.training.tables import batches_of

    rows, shares, active = batches_of([schedule], [0], 10)
    assert active[:, 0].tolist() == [True] * 9 + [False]
    assert torch.allclose(shares[:9].sum(dim=-1), torch.ones(9, 1))
    for epoch in range(3):
        part = slice(3 * epoch, 3 * epoch + 3)
        seen = rows[part, 0][shares[part, 0] > 0]
        assert sorted(seen.tolist()) == sorted(schedule.table.tolist())
    assert not torch.equal(rows[:3], rows[3:6])
    for first in range(10):
        for span in range(1, 11 - first):
            for part, whole in zip(batches_of([schedule], [first], span), (rows, shares, active), strict=True):
                assert torch.equal(part, whole[first : first + span])


def test_bf16_trains_near_float32_and_differs_from_it():
    exact, rough = (trained([small_spec("cnn", precision=p)])[1] for p in ("float32", "bf16"))
    assert not torch.equal(exact.weights, rough.weights)
    assert torch.allclose(exact.errors[0], rough.errors[0], rtol=0.1)


def test_members_of_different_programs_are_refused():
    with pytest.raises(InvalidValue, match="the same decoder"):
        Ensemble([small_spec("mlp"), small_spec("cnn")], CPU)
    with pytest.raises(InvalidValue, match="the same decoder"):
        Ensemble([small_spec("mlp"), small_spec("mlp", batch=8)], CPU)
    with pytest.raises(InvalidValue, match="tf32"):
        Ensemble([small_spec("mlp", precision="tf32")], CPU)
    with pytest.raises(InvalidValue, match="at least one"):
        Ensemble([], CPU)
