"""Every remedy in the engine: a member trains as it would alone and goes on after a stop, to the same bits."""

from typing import Literal

import pytest
import torch
from pydantic import Field
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

import recombine as rc
from recombine.decoders import DECODERS, DecoderSpec, StagedDecoder
from recombine.decoders.base import ToImage
from recombine.remedies import REMEDIES
from recombine.training import Ensemble, State, evaluate, fit, scores
from recombine.training.objective import FastDecode
from tests.small import small_spec

CPU = torch.device("cpu")
SMALL = {"width": 8, "depth": 1, "rank": 2}


def remedied(kind, seed=0):
    cls = REMEDIES[kind]
    remedy = cls(**{name: value for name, value in SMALL.items() if name in cls.model_fields})
    base = small_spec("low_rank" if kind in ("entropy", "variance") else "cnn", penalties=(), seed=seed, steps=5)
    return base.with_remedy(remedy)


def trained(specs, steps=None):
    ensemble = Ensemble(specs, CPU)
    state = ensemble.initial()
    for _ in fit(ensemble, state):
        if steps is not None and int(state.step.max()) >= steps:
            break
    return state


@pytest.mark.parametrize("kind", [kind for kind in REMEDIES if kind not in DECODERS])  # those are in tests/training
def test_a_member_ends_as_alone_and_as_after_a_stop(kind):
    specs = [remedied(kind, seed) for seed in range(2)]
    together = trained(specs)
    alone = trained(specs[1:])
    assert torch.equal(together.weights[1], alone.weights[0])
    assert torch.equal(together.errors[1], alone.errors[0])
    half = trained(specs, steps=2)
    assert 0 < int(half.step[0]) < specs[0].recipe.steps
    resumed = State.stack([half.member(index) for index in range(2)], CPU)
    for _ in fit(Ensemble(specs, CPU), resumed):
        pass
    assert torch.equal(resumed.weights, together.weights)


@pytest.mark.parametrize("kind", REMEDIES)
def test_a_remedy_is_text_and_part_of_the_key(kind):
    spec = remedied(kind)
    assert rc.RunSpec.from_json(spec.to_json()) == spec
    assert spec.digest != small_spec("low_rank" if kind in ("entropy", "variance") else "cnn", penalties=()).digest
    remedy = REMEDIES[kind]()
    assert REMEDIES.parse(str(remedy)) == remedy
    assert remedy.source


@pytest.mark.parametrize("kind", [kind for kind in REMEDIES if issubclass(REMEDIES[kind], rc.Penalty)])
def test_a_penalty_is_the_same_under_vmap(kind):
    ensemble = Ensemble([remedied(kind, seed) for seed in range(3)], CPU)
    state, rows = ensemble.initial(), torch.arange(24).view(3, 8)
    shares, active = torch.full((3, 8), 0.125), torch.ones(3, dtype=torch.bool)
    one, single = ensemble.gradients(state, rows, shares, active)
    ensemble.batched = True
    many, batched = ensemble.gradients(state, rows, shares, active)
    torch.testing.assert_close(one.total, many.total, rtol=1e-4, atol=1e-6)
    assert (single - batched).norm() < 1e-4 * single.norm()


@pytest.fixture
def normed():
    @DECODERS.register
    class Normed(DecoderSpec):
        """Layers with state and randomness."""

        kind: Literal["normed"] = "normed"
        norm: Literal["batch", "group", "spectral", "dropout"] = "batch"

        def build(self, interface):
            first = nn.Linear(interface.code_size, 16, bias=False)  # whose gradient under a batch norm is only rounding
            layers = {
                "batch": lambda: [first, nn.BatchNorm1d(16), nn.ReLU()],
                "group": lambda: [first, nn.GroupNorm(4, 16), nn.ReLU()],
                "spectral": lambda: [spectral_norm(first), nn.ReLU()],
                "dropout": lambda: [first, nn.ReLU(), nn.Dropout(0.5)],
            }[self.norm]()
            output = nn.Linear(16, interface.pixels), ToImage(interface.image_shape)
            return StagedDecoder({"hidden": nn.Sequential(*layers), "output": nn.Sequential(*output)})

    yield Normed
    DECODERS.unregister("normed")


@pytest.mark.parametrize("norm", ["batch", "group", "spectral", "dropout"])
def test_scores_are_those_of_the_loaded_module(normed, norm, tmp_path):
    specs = [small_spec(normed(norm=norm), seed=seed, steps=6) for seed in range(2)]
    runs = rc.train(specs, tmp_path / "store", device="cpu")
    for run in runs:
        again = scores(evaluate(run.spec.task, run.module(), CPU))
        assert again["id_mse"] == pytest.approx(run.scores["id_mse"], rel=1e-6)
        assert again["ood_mse"] == pytest.approx(run.scores["ood_mse"], rel=1e-6)
    whole, half = trained(specs), trained(specs, steps=2)
    resumed = State.stack([half.member(index) for index in range(2)], CPU)
    for _ in fit(Ensemble(specs, CPU), resumed):
        pass
    assert torch.equal(resumed.weights, whole.weights)
    assert torch.equal(resumed.buffers, whole.buffers)


def test_batch_norm_trains_as_in_a_plain_loop(normed):
    """Running means too; batches that are full, since padding counts in a batch's statistics."""
    spec = small_spec(normed(norm="batch"), steps=8, task={"training": "draws:48"})
    ensemble = Ensemble([spec], CPU)
    state = trained([spec])
    module = spec.module()
    recipe = spec.recipe
    optimiser = torch.optim.AdamW(module.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)
    schedule = ensemble.schedules[0]
    for step in range(8):
        rows = schedule._rows(range(3))[step]
        optimiser.zero_grad()
        (module(ensemble.examples.inputs[rows]) - ensemble.examples.targets[rows]).square().mean().backward()
        optimiser.step()
    named = ensemble.named_weights(state, 0)
    for name, part in module.state_dict().items():
        torch.testing.assert_close(named[name], part, rtol=1e-4, atol=1e-5)


MISTAKES = {"hessian:weight=-1": "at least 0", "nonsense": "one of", "entropy": "low-rank", "mixup:weight=x": "number"}


@pytest.mark.parametrize(("remedy", "words"), MISTAKES.items())
def test_mistakes_are_one_line(remedy, words):
    with pytest.raises(rc.InvalidValue, match=f"{words}.*{remedy}"):
        small_spec("cnn").with_remedy(remedy)


class Own(rc.Penalty):
    """A loss term by number."""

    kind: Literal["own"] = "own"
    weight: float = Field(default=1.0, gt=0)
    number: int = 0

    def loss(self, decode, codes, blocks, generator):
        values = (
            lambda: 1 / decode(codes).var(dim=0).mean(),
            lambda: decode(codes).square(),
            lambda: decode(codes).square().mean().view(1),
            lambda: decode(codes).mean() * blocks[2],
            lambda: decode(codes).mean() / 0,
            lambda: decode(codes[torch.randperm(len(codes))]).square().mean(),
        )
        return values[self.number]()


@pytest.mark.parametrize(
    ("number", "words"), list(enumerate((r"not \(16, 8, 8\)", r"not \(1,\)", "IndexError", "inf", "noise"), 1))
)
def test_a_penalty_that_cannot_train_is_refused_before_training(number, words):
    with pytest.raises(rc.InvalidValue, match=f"{words}.*, got 'own:number={number}'"):
        Ensemble([small_spec("cnn").with_remedy(Own(number=number))], CPU)


def test_a_penalty_may_need_different_rows_and_bound_its_weight():
    assert len(Ensemble([small_spec("cnn").with_remedy(Own(weight=weight)) for weight in (1, 2)], CPU)) == 2


@pytest.mark.parametrize("kind", ["mlp", "cnn", "low_rank", "coordinate"])
def test_the_forward_pass_of_many_members_serves_penalties_under_vmap(kind):
    """What GPUs run, here on torch's own operations."""
    ensemble = Ensemble([small_spec(kind, seed=seed) for seed in range(3)], CPU)
    weights = ensemble.initial().weights.requires_grad_()
    codes = ensemble.examples.inputs[:12].view(3, 4, -1)
    fast = torch.func.vmap(lambda own, rows: FastDecode.apply(own, rows, ensemble.objective))(weights, codes)
    slow = torch.stack([spec.module()(rows) for spec, rows in zip(ensemble.specs, codes, strict=True)])
    torch.testing.assert_close(fast, slow, rtol=1e-4, atol=1e-5)
    (gradient,) = torch.autograd.grad(fast.square().sum(), weights)
    assert gradient.norm() > 0


@pytest.mark.parametrize(("norm", "batched"), [("batch", True), ("spectral", False)])
def test_modules_that_vmap_refuses_train_in_turn(normed, norm, batched):
    spec = small_spec(steps=3).replace(decoder=normed(norm=norm))
    assert Ensemble(spec.seeds(range(2)), CPU).can_batch() == batched


def test_a_factory_is_a_decoder(tmp_path):
    @rc.module_decoder("factory")
    def factory(interface):
        """Return a linear layer, batch norm and another layer."""
        sizes = interface.code_size, 8, interface.pixels
        return nn.Sequential(nn.Linear(*sizes[:2]), nn.BatchNorm1d(8), spectral_norm(nn.Linear(*sizes[1:])))

    try:
        spec = small_spec(steps=3).replace(decoder="factory")
        result = rc.compare(spec, ["mixup:weight=0.1", "isolated"], seeds=2, store=tmp_path / "store", device="cpu")
        assert result.data["ood_mse"].notnull().all()
        run = result.runs["none"][0]
        assert run.module().stage_names == ("0", "1", "output")
        assert scores(evaluate(spec.task, run.module(), CPU))["ood_mse"] == pytest.approx(
            run.scores["ood_mse"], rel=1e-6
        )
        assert list(rc.diagnose(run)["stage"].values)[-1] == "output"
    finally:
        DECODERS.unregister("factory")
