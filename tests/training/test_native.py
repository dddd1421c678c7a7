"""Compiled kernels against torch, over random shapes; and doing without them."""

import os
import subprocess
import sys
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from recombine import native
from recombine.decoders import CNN, LowRank
from recombine.native import build
from recombine.native.chunks import MOST_CHUNKS, chunks_of
from recombine.specs import RunSpec
from recombine.tasks import BumpTask
from recombine.training import Ensemble, fit
from recombine.training.adamw import adamw_update
from tests.small import small_spec

CPU = torch.device("cpu")
needs_compiler = pytest.mark.skipif(not native.available(), reason=f"no kernels: {native.why_not()}")


def trained(spec):
    ensemble = Ensemble([spec], CPU)
    state = ensemble.initial()
    for _ in fit(ensemble, state):
        pass
    return state


def near(found, expected, least=1e-3):
    """To float32's accuracy, of the largest number or `least`: Winograd's sums have cancelled larger ones."""
    scale = max(float(expected.detach().abs().max()), least)
    torch.testing.assert_close(found.detach(), expected.detach(), rtol=0, atol=3e-5 * scale)


def filled(module, chance):
    """Whole numbers as weights, mostly zero, and biases that keep what goes into a ReLU away from zero, where rounding
    would decide which way a gradient goes: ½, ¼, ⅛ … layer by layer."""
    for depth, layer in enumerate(module):
        signs = torch.randint(0, 16, layer.weight.shape, generator=chance)
        layer.weight.data = (signs == 0).float() - (signs == 1).float()
        layer.bias.data = torch.randint(-2, 3, layer.bias.shape, generator=chance) + 0.5 ** (depth + 1)


@needs_compiler
@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 20), st.integers(1, 30), st.integers(1, 9), st.sampled_from([1, 5, 8, 16, 24, 32, 33, 48, 64]),
    st.lists(st.booleans(), max_size=3), st.integers(0, 99), st.sampled_from([1, 2, 3]),
)  # fmt: skip
def test_networks_agree_with_torch(batch, code, first, channels, ups, seed, threads):
    """Any first size, any order of layers; answers and gradients of all parameters."""
    chance = torch.Generator().manual_seed(seed)
    layers = [
        nn.ConvTranspose2d(channels, channels, 4, stride=2, padding=1) if up else
        nn.ConvTranspose2d(channels, channels, 3, padding=1) for up in ups
    ]  # fmt: skip
    module = nn.Sequential(nn.ConvTranspose2d(code, channels, first), *layers, nn.Conv2d(channels, 1, 3, padding=1))
    filled(module, chance)
    codes = torch.randint(-2, 3, (batch, code), generator=chance).float()
    side = first * 2 ** sum(ups)
    scale = torch.randint(-2, 3, (batch, side, side), generator=chance).float()
    image = codes[:, :, None, None].double()
    for layer in module.double()[:-1]:
        image = layer(image).relu()
    expected = module[-1](image).squeeze(1)
    wanted = torch.autograd.grad((expected * scale).sum(), list(module.parameters()))
    vector = torch.cat([p.detach().float().flatten() for p in module.parameters()] + [torch.zeros(3)])
    vector.requires_grad_()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = native.Convolutional.apply(vector, codes, native.Plan(code, first, channels, tuple(ups)))
        (gradient,) = torch.autograd.grad((found * scale).sum(), vector)
    finally:
        torch.set_num_threads(before)
    near(found, expected.float(), least=1.0)  # whole numbers went in, and may have cancelled to nothing
    sizes = [part.numel() for part in wanted]
    for ours, theirs in zip(gradient[:-3].split(sizes), wanted, strict=True):
        near(ours, theirs.flatten().float(), least=1.0)
    assert not gradient[-3:].any()


@needs_compiler
@pytest.mark.parametrize(("size", "decoder"), [(7, "cnn:width=16:depth=1"), (10, "cnn:width=32:depth=2"),
                                               (14, "cnn:width=16:depth=3"), (28, "cnn:width=32:depth=4"),
                                               (14, "cnn:width=8:depth=3"), (28, "cnn:width=40:depth=4")])  # fmt: skip
def test_a_whole_network_has_torchs_answers_and_gradients(size, decoder):
    spec = RunSpec(task=BumpTask(size=size, training="draws:12"), decoder=decoder)
    ensemble = Ensemble([spec], CPU)
    weights = ensemble.initial().weights[0].requires_grad_()
    inputs = ensemble.examples.inputs[:9]
    found = ensemble.objective.decoder.forward_one(weights, inputs)
    assert found is not None, "the kernels did not take it"
    fast, plain = found.outputs, ensemble.objective.answers(weights, inputs, torch.float32)
    assert fast.shape == plain.shape == (9, size, size)
    near(fast, plain)
    scale = torch.randn(plain.shape, generator=torch.Generator().manual_seed(1))
    near(*(torch.autograd.grad((answers * scale).sum(), weights)[0] for answers in (fast, plain)))


@needs_compiler
@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 20), st.integers(1, 5), st.integers(1, 5), st.integers(1, 40), st.integers(1, 40), st.booleans(),
    st.integers(0, 99), st.sampled_from([1, 2]),
)  # fmt: skip
def test_narrow_convolutions_agree_with_torch(batch, channels, out, height, width, below, seed, threads):
    chance = torch.Generator().manual_seed(seed)
    shapes = (batch, channels, height, width), (out, channels, 3, 3), (out,)
    x, w, bias = (torch.randn(shape, generator=chance) for shape in shapes)
    x, w = x.transpose(2, 3).contiguous().transpose(2, 3), w.flip(0)
    leaves = [x.requires_grad_(below), w.requires_grad_(), bias.requires_grad_()]
    wanted = leaves if below else leaves[1:]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = native.NarrowConvolution.apply(*leaves)
        ours = torch.autograd.grad(found.square().sum() / 2, wanted)
    finally:
        torch.set_num_threads(before)
    expected = functional.conv2d(*(leaf.double() for leaf in leaves), padding=1)
    theirs = torch.autograd.grad(expected.square().sum() / 2, wanted)
    assert found.shape == (batch, out, height, width)
    near(found, expected.float(), least=1.0)
    for one, other in zip(ours, theirs, strict=True):
        near(one, other.float(), least=1.0)


@needs_compiler
@pytest.mark.parametrize(
    ("images", "weights", "biases"),
    [((1, 2, 4, 4), (3, 1, 3, 3), (3,)), ((1, 2, 4, 4), (3, 2, 3, 3), (2,)), ((1, 2, 4, 4), (3, 2, 5, 5), (3,))],
)
def test_narrow_convolutions_that_do_not_fit_are_refused(images, weights, biases):
    with pytest.raises(ValueError, match="weights of"):
        native.NarrowConvolution.apply(*(torch.ones(shape) for shape in (images, weights, biases)))
    with pytest.raises(ValueError, match="wanted: float32"):
        native.NarrowConvolution.apply(*(torch.ones(shape).double() for shape in (images, weights, biases)))


@needs_compiler
@pytest.mark.parametrize("vectors", ["unit", "raw"])
def test_a_low_rank_network_has_torchs_answers_penalties_and_gradients(vectors, monkeypatch):
    spec = small_spec(LowRank(vectors=vectors, depth=2))
    ensemble = Ensemble([spec], CPU)
    weights = ensemble.initial().weights[0].requires_grad_()
    inputs, targets = ensemble.examples.inputs[:9], ensemble.examples.targets[:9]
    assert ensemble.objective.decoder.forward_one(weights, inputs) is not None, "the kernels did not take it"
    terms = torch.tensor([0.3, 0.2, 0.1])
    ends = []
    for fast in (True, False):
        monkeypatch.setattr(native, "available", lambda fast=fast: fast)
        total, error = ensemble.objective.loss(weights, inputs, targets, torch.full((9,), 1 / 9), terms)
        ends.append((total, error, torch.autograd.grad(total, weights)[0]))
    for one, other in zip(*ends, strict=True):
        near(one, other)


@needs_compiler
@pytest.mark.parametrize("decoder", [CNN(width=32, depth=3), LowRank()], ids=["cnn", "low_rank"])
def test_bits_do_not_depend_on_threads(decoder):
    spec = small_spec(decoder, steps=6, batch=29)
    before, ends = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            ends.append(trained(spec).weights)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(ends[0], ends[1])
    assert torch.equal(ends[0], ends[2])


@needs_compiler
def test_what_is_no_number_stays_so():
    """A network that diverged must show it."""
    plan = native.Plan(3, 2, 16, (True, False))
    for place in (0, -1, 3 * 16 * 4 + 20):
        vector = torch.ones(plan.sizes(1).parameters)
        vector[place] = torch.nan
        assert torch.isnan(native.Convolutional.apply(vector, torch.ones(2, 3), plan)).all()


@needs_compiler
def test_it_goes_backward_once():
    plan = native.Plan(3, 2, 16, (False,))
    vector = torch.ones(plan.sizes(1).parameters, requires_grad=True)
    total = native.Convolutional.apply(vector, torch.ones(2, 3), plan).sum()
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="once"):
        total.backward()


@needs_compiler
@pytest.mark.parametrize("beta2", [0.999, 0.99999])
def test_adamw_is_torchs(beta2):
    chance = torch.Generator().manual_seed(0)
    weights = torch.randn(1, 1000, generator=chance)
    parameter = nn.Parameter(weights[0].clone())
    theirs = torch.optim.AdamW([parameter], lr=1e-2, weight_decay=0.1, betas=(0.9, beta2))
    moments, step = [torch.zeros_like(weights), torch.zeros_like(weights)], torch.tensor([0])
    rates = {"lr": torch.tensor([1e-2]), "weight_decay": torch.tensor([0.1])}
    for _ in range(10):
        gradient = torch.randn(1, 1000, generator=chance)
        parameter.grad = gradient[0]
        theirs.step()
        adamw_update(
            weights, *moments, step, gradient, torch.tensor([True]), **rates,
            beta1=0.9, beta2=beta2, epsilon=1e-8,
        )  # fmt: skip
    torch.testing.assert_close(weights[0], parameter.data, rtol=1e-6, atol=1e-7)
    kept = theirs.state[parameter]
    torch.testing.assert_close(moments[1][0], kept["exp_avg_sq"], rtol=2e-6, atol=0)


def test_adamw_in_double_precision_is_torchs_own():
    weights, moment = torch.ones(1, 8, dtype=torch.float64), torch.zeros(1, 8, dtype=torch.float64)
    adamw_update(
        weights, moment, moment.clone(), torch.tensor([0]), torch.ones(1, 8, dtype=torch.float64), torch.tensor([True]),
        lr=torch.tensor([0.5]), weight_decay=torch.tensor([0.0]), beta1=0.9, beta2=0.99, epsilon=0.0,
    )  # fmt: skip
    assert torch.allclose(weights, torch.full_like(weights, 0.5))


@needs_compiler
@pytest.mark.parametrize(
    ("vector", "codes"),
    [(torch.ones(10), torch.ones(2, 3)), (torch.ones(9999, dtype=torch.float64), torch.ones(2, 3)),
     (torch.ones(9999), torch.ones(2, 4)), (torch.ones(9999), torch.ones(2, 3).double())],
)  # fmt: skip
def test_what_does_not_fit_is_refused(vector, codes):
    with pytest.raises(ValueError, match="wanted"):
        native.Convolutional.apply(vector, codes, native.Plan(3, 2, 16, (False,)))


@needs_compiler
def test_large_batches_are_in_few_chunks():
    """Each chunk has sums of its own, as large as the weights."""
    spec = small_spec(CNN(width=16, depth=2), batch=300, steps=2, task={"training": "draws:300"})
    assert torch.isfinite(trained(spec).weights).all()
    assert len(chunks_of(300)) == MOST_CHUNKS
    assert [last - first for first, last, _ in chunks_of(32)] == [8] * 4


@needs_compiler
@pytest.mark.parametrize("decoder", [CNN(width=32, depth=2), LowRank()], ids=["cnn", "low_rank"])
def test_training_without_them_is_the_same_within_rounding(decoder, monkeypatch):
    spec = small_spec(decoder)
    fast = trained(spec)
    monkeypatch.setattr(native, "available", lambda: False)
    plain = trained(spec)
    assert not torch.equal(fast.weights, plain.weights)
    assert torch.allclose(fast.errors[0], plain.errors[0], rtol=1e-3)


@needs_compiler
def test_they_compute_in_float32_only(monkeypatch):
    half = small_spec(CNN(width=16, depth=2), precision="bf16")
    used = trained(half)
    monkeypatch.setattr(native, "takes", lambda channels: pytest.fail("asked in bf16"))
    assert torch.equal(used.weights, trained(half).weights)


@needs_compiler
@pytest.mark.parametrize("width", [8, 24])
def test_widths_that_are_no_whole_blocks_train_padded(width, monkeypatch):
    """To torch's weights within rounding; AdamW sees the network's own parameters alone."""
    spec = small_spec(CNN(width=width, depth=2), steps=8)
    taken = []
    monkeypatch.setattr(native.Convolutional, "apply", lambda *words, on=native.Convolutional.apply: (
        taken.append(words[2].channels), on(*words))[1])  # fmt: skip
    fast = trained(spec)
    assert taken == [width] * 8
    monkeypatch.setattr(native, "available", lambda: False)
    plain = trained(spec)
    assert len(taken) == 8
    assert fast.weights.shape == fast.mean.shape == plain.weights.shape
    assert torch.allclose(fast.errors[0], plain.errors[0], rtol=1e-4)
    near(fast.weights, plain.weights)


@needs_compiler
def test_padding_has_no_gradient_and_no_part_in_the_answers():
    """The same numbers as a network of whole blocks whose other channels are zero."""
    plan, padded = native.Plan(3, 2, 5, (True, False)), native.Plan(3, 2, 16, (True, False))
    vector = torch.randn(plan.parameters, generator=torch.Generator().manual_seed(0))
    wide = plan.padded(vector)
    assert len(wide) == padded.parameters
    assert torch.equal(plan.cropped(wide, plan.parameters), vector)
    assert int((wide != 0).sum()) == len(vector)
    codes, ends = torch.ones(2, 3), []
    for own, parameters in ((plan, vector), (padded, wide)):
        parameters = parameters.clone().requires_grad_()
        drawn = native.Convolutional.apply(parameters, codes, own)
        ends.append((drawn, torch.autograd.grad(drawn.square().sum(), parameters)[0]))
    assert torch.equal(ends[0][0], ends[1][0])
    assert torch.equal(ends[0][1], plan.cropped(ends[1][1], plan.parameters))


def test_without_kernels_networks_are_torchs(monkeypatch):
    monkeypatch.setattr(native, "available", lambda: False)
    decoder = small_spec(CNN(width=24, depth=1)).module()
    assert decoder.forward_one(torch.zeros(0), torch.zeros(2, 28)) is None


SAYS = "from recombine import native; print(native.available(), native.why_not())"


def said(environment):
    done = subprocess.run(
        [sys.executable, "-c", SAYS], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    return done.stdout.strip()


def test_continuous_integration_has_kernels():
    if "CI" in os.environ:
        assert native.why_not() is None


def test_without_a_compiler_there_are_none(tmp_path):
    assert said({"CXX": str(tmp_path / "none")}) == f"False no C++ compiler ({tmp_path / 'none'})"


def test_a_failing_compiler_is_one_line(tmp_path):
    fake = tmp_path / "cc"
    fake.write_text("#!/bin/sh\necho 'x.cpp: error: bad' >&2\nexit 1\n")
    fake.chmod(0o755)
    found = said({"CXX": f"{fake} -pthread", "RECOMBINE_CACHE": str(tmp_path / "cache")})
    assert found == "False cc failed: x.cpp: error: bad"
    assert not list((tmp_path / "cache").iterdir())


@pytest.mark.parametrize("word", ["0", "False"])
def test_a_variable_does_without(word):
    assert said({"RECOMBINE_KERNELS": word}) == "False RECOMBINE_KERNELS says so"


@needs_compiler
def test_another_alphabet_is_no_trouble():
    assert said({"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "POSIX"}) == "True None"


def test_asking_often_for_what_is_not_there_keeps_nothing(monkeypatch):
    """An error that is kept and raised again would hold on to every caller's frame, and their tensors."""
    monkeypatch.setenv("RECOMBINE_KERNELS", "0")
    build._found.cache_clear()

    class Large:
        pass

    def caller():
        held = Large()
        assert not native.available()
        with pytest.raises(build.NotBuilt):
            build.library()
        return weakref.ref(held)

    try:
        assert all(caller()() is None for _ in range(3))
    finally:
        monkeypatch.undo()
        build._found.cache_clear()
