"""Conditional diffusion: known answers, members, and what remedies do to a denoiser."""

import math

import pytest
import torch
from torch import nn

import recombine as rc
from recombine.decoders import MLP, AdditiveDecoder, Denoiser, LowRank, UNet
from recombine.decoders.denoiser import Sampler
from recombine.errors import InvalidValue
from recombine.remedies import REMEDIES
from recombine.training import Ensemble, Evaluator, State, fit
from recombine.training.objective import denoising
from tests.small import small_spec

CPU = torch.device("cpu")
SMALL = Denoiser(width=8, steps=4)


class Optimal(nn.Module):
    """v of the optimal denoiser of images that are normal with a mean and a standard deviation (0: one image)."""

    def __init__(self, mean, deviation):
        super().__init__()
        self.mean, self.deviation = mean, deviation

    def forward(self, image, timestep, condition):
        angle = math.pi / 2 * timestep[:, None, None, None]
        alpha, sigma = angle.cos(), angle.sin()
        variance = (self.deviation * alpha) ** 2 + sigma**2
        # E[x | z], E[ε | z] of jointly normal x, ε and z = α x + σ ε
        offset = (image - alpha * self.mean) / variance
        clean, noise = self.mean + self.deviation**2 * alpha * offset, sigma * offset
        return alpha * noise - sigma * clean


@pytest.mark.parametrize("steps", [1, 2, 16])
def test_a_sample_of_one_image_is_that_image(steps):
    mean = torch.rand(1, 5, 6)
    images = Sampler(Optimal(2 * mean - 1, 0.0), (5, 6), steps, seed=0)(torch.zeros(3, 4))
    assert torch.allclose(images, mean.expand(3, 5, 6), atol=1e-5)


def test_samples_of_a_normal_distribution_have_its_mean_and_deviation():
    mean, deviation = torch.tensor([[[-0.5]], [[0.0]], [[0.3]]]), 0.4
    sampler = Sampler(Optimal(mean, deviation), (3, 64, 64), 200, seed=1)
    images = 2 * sampler(torch.zeros(1, 4))[0] - 1
    exact = mean + deviation * sampler.noise  # the probability-flow ODE is linear here
    assert torch.allclose(images, exact, atol=0.02)


def test_the_loss_is_zero_where_v_is_right_and_its_square_elsewhere():
    images = torch.rand(5, 3, 4)
    noise, timestep = torch.randn(5, 3, 4), torch.rand(5)
    clean = 2 * images[:1] - 1
    alone = Sampler(Optimal(clean[:, None], 0.0), (3, 4), 4, seed=0)
    same = images[:1].expand(5, 3, 4)
    assert torch.allclose(alone.with_v_error(torch.zeros(5, 2), same, noise, timestep), same, atol=1e-4)
    silent = Sampler(nn.Module(), (3, 4), 4, seed=0)
    silent.network.forward = lambda image, timestep, condition: torch.zeros_like(image)
    angle = math.pi / 2 * timestep[:, None, None]
    v = angle.cos() * noise - angle.sin() * (2 * images - 1)
    assert torch.allclose(silent.with_v_error(torch.zeros(5, 2), images, noise, timestep) - images, -v, atol=1e-6)


def test_the_plain_decoder_is_the_same_network_with_one_step():
    spec = small_spec(Denoiser(width=8, steps=1))
    plain = small_spec(UNet(width=8))
    inputs = spec.task.examples(spec.task.grid.points[:4]).inputs
    assert torch.equal(spec.module().eval()(inputs), plain.module().eval()(inputs))


def ensemble_of(specs):
    ensemble = Ensemble(specs, CPU)
    return ensemble, ensemble.initial()


def test_noise_and_timesteps_are_a_members_own_and_differ_by_step():
    ensemble, state = ensemble_of(small_spec(SMALL).seeds(range(2)))
    rows, shares = torch.zeros(16, dtype=torch.int64), torch.full((16,), 1 / 16)

    def drawn(member, step):
        return denoising(ensemble._batch(rows, shares, torch.tensor(step), state.buffers[member], member))[1:]

    first = drawn(0, 0)
    assert all(torch.equal(own, again) for own, again in zip(first, drawn(0, 0), strict=True))
    for other in (drawn(0, 1), drawn(1, 0)):
        assert not any(torch.equal(own, new) for own, new in zip(first, other, strict=True))
    noise, timestep = (torch.cat([drawn(0, step)[k] for step in range(40)]) for k in range(2))
    assert abs(float(noise.mean())) < 0.02
    assert abs(float(noise.std()) - 1) < 0.02
    assert 0 < float(timestep.min()) < 0.02
    assert 0.98 < float(timestep.max()) < 1
    assert math.isclose(float(timestep.mean()), 0.5, rel_tol=0.05)


@pytest.mark.parametrize("renderer", [None, "additive:base=(cnn:width=4:depth=1)", "low_rank:channels=3:depth=1"])
def test_many_members_give_the_losses_and_gradients_of_each_alone(renderer):
    decoder = SMALL.replace(renderer=renderer)
    penalties = ("entropy:0.1", "variance:0.1") if isinstance(decoder.renderer, LowRank) else ()
    ensemble, state = ensemble_of(small_spec(decoder, penalties=penalties).seeds(range(3)))
    rows = torch.arange(12).view(3, 4)
    shares, active = torch.full((3, 4), 0.25), torch.ones(3, dtype=torch.bool)
    alone, expected = ensemble.gradients(state, rows, shares, active)
    assert ensemble.can_batch()
    ensemble.batched = True
    own, gradient = ensemble.gradients(state, rows, shares, active)
    for together, apart in ((own.total, alone.total), (own.error, alone.error), (gradient, expected)):
        torch.testing.assert_close(together, apart, rtol=1e-4, atol=1e-5)


def test_a_member_trains_as_it_does_alone_and_after_an_interruption():
    specs = small_spec(SMALL, steps=6).seeds(range(3))
    ensemble, state = ensemble_of(specs)
    for _ in fit(ensemble, state):
        pass
    alone, own = ensemble_of(specs[1])
    for _ in fit(alone, own):
        own = State.stack([own.member(0)], CPU)  # a checkpoint after every span
        break
    assert 0 < int(own.step) < 6
    for _ in fit(alone, own):
        pass
    assert torch.equal(own.weights[0], state.weights[1])
    assert torch.equal(own.errors[0], state.errors[1])


TASK = rc.SpriteTask(
    size=20, shapes=("disc",), factors=("hue=0..240..2", "x=6..13..3"), encoding="onehot", training="each",
    holdout="hue>120,x>12", class_boundaries="hue=120",
)  # fmt: skip


@pytest.mark.slow
def test_a_denoiser_learns_kept_combinations():
    """Of 8 × 8 places, within seconds (R² 0.82, all right); with more steps samples become better."""
    task = rc.BumpTask(size=8, encoding="onehot", training="draws:320")
    recipe = rc.Recipe(steps=400, batch=32, lr=4e-3)
    ensemble, state = ensemble_of(rc.RunSpec(task=task, decoder=SMALL.replace(steps=8), recipe=recipe))
    for _ in fit(ensemble, state):
        pass
    evaluator = Evaluator(task, CPU)
    scores = rc.scores(evaluator.of(lambda codes: ensemble.outputs(state, 0, codes), task.held_out))
    assert 1 - scores["id_mse"] / evaluator.spread()["id"] > 0.6
    assert scores["id_accuracy"] > 0.9


def test_remedies_replace_what_draws_the_codes_of_a_denoiser():
    rendered = SMALL.replace(renderer="mlp")
    spec = rc.RunSpec(task=TASK, decoder=rendered)
    assert spec.with_remedy("additive").decoder == SMALL.replace(renderer=AdditiveDecoder(base=MLP()))
    low = spec.with_remedy("low_rank")
    assert isinstance(low.decoder.renderer, LowRank)
    assert [penalty.kind for penalty in low.penalties] == ["entropy", "variance"]
    assert spec.with_remedy("wider").decoder == rendered.replace(width=16)
    isolated = spec.with_remedy("isolated")
    assert isolated.decoder == rendered
    assert isolated.task.isolated
    twice = low.with_remedy("mixup")
    assert twice.decoder == low.decoder
    assert len(twice.penalties) == 3


@pytest.mark.parametrize("network", ["unet", "denoiser:steps=2"])
@pytest.mark.parametrize("remedy", REMEDIES)
def test_every_remedy_trains_or_is_refused(network, remedy):
    task = rc.BumpTask(size=6, encoding="onehot")
    spec = rc.RunSpec(task=task, decoder=f"{network}:width=4:renderer=mlp", recipe=rc.Recipe(steps=2, batch=4))
    if remedy in ("entropy", "variance"):
        with pytest.raises(InvalidValue, match="which has no low-rank embeddings"):
            spec.with_remedy(remedy)
        return
    ensemble, state = ensemble_of(spec.with_remedy(remedy))
    for _ in fit(ensemble, state):
        pass
    assert int(state.step) == 2
    assert bool(state.weights.isfinite().all())


@pytest.mark.parametrize("remedy", ["additive", "broadcast", "low_rank", "interaction", "dropout"])
def test_remedies_that_replace_the_decoder_need_a_renderer(remedy):
    with pytest.raises(InvalidValue, match=f"renderer must be given for remedy {remedy}, which replaces the decoder"):
        rc.RunSpec(task=TASK, decoder=SMALL).with_remedy(remedy)
    assert rc.RunSpec(task=TASK, decoder=SMALL).with_remedy("mixup").decoder == SMALL


def test_a_denoiser_inside_another_decoder_is_refused():
    with pytest.raises(InvalidValue, match="decoder must be a denoiser with the other decoder as its renderer"):
        Ensemble(rc.RunSpec(task=TASK, decoder=AdditiveDecoder(base=SMALL)), CPU)
