"""Compiled kernels against torch, over random shapes; and doing without them."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from recombine import native
from recombine.decoders import CNN
from recombine.native import build
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


def near(found, expected):
    """To float32's accuracy, of the largest number: Winograd's sums have cancelled larger ones."""
    scale = max(float(expected.detach().abs().max()), 1e-3)
    torch.testing.assert_close(found.detach(), expected.detach(), rtol=0, atol=3e-5 * scale)


@needs_compiler
@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 20), st.integers(1, 30), st.integers(1, 9), st.sampled_from([16, 32, 48, 64]),
    st.lists(st.booleans(), max_size=3), st.integers(0, 99), st.sampled_from([1, 2, 3]),
)  # fmt: skip
def test_networks_agree_with_torch(batch, code, first, channels, ups, seed, threads):
    """Any first size, any order of layers; answers and gradients of all parameters."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [
            nn.ConvTranspose2d(channels, channels, 4, stride=2, padding=1) if up else
            nn.ConvTranspose2d(channels, channels, 3, padding=1) for up in ups
        ]  # fmt: skip
        module = nn.Sequential(nn.ConvTranspose2d(code, channels, first), *layers, nn.Conv2d(channels, 1, 3, padding=1))
        codes, scale = torch.randn(batch, code), torch.randn(batch, first * 2 ** sum(ups), first * 2 ** sum(ups))
    image = codes[:, :, None, None]
    for layer in module[:-1]:
        image = layer(image).relu()
    expected = module[-1](image).squeeze(1)
    wanted = torch.autograd.grad((expected * scale).sum(), list(module.parameters()))
    vector = torch.cat([p.detach().flatten() for p in module.parameters()] + [torch.zeros(3)]).requires_grad_()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = native.Convolutional.apply(vector, codes, native.Plan(code, first, channels, tuple(ups)))
        (gradient,) = torch.autograd.grad((found * scale).sum(), vector)
    finally:
        torch.set_num_threads(before)
    near(found, expected)
    sizes = [part.numel() for part in wanted]
    for ours, theirs in zip(gradient[:-3].split(sizes), wanted, strict=True):
        near(ours, theirs.flatten())
    assert not gradient[-3:].any()


@needs_compiler
@pytest.mark.parametrize(("size", "decoder"), [(7, "cnn:width=16:depth=1"), (10, "cnn:width=32:depth=2"),
                                               (14, "cnn:width=16:depth=3"), (28, "cnn:width=32:depth=4")])  # fmt: skip
def test_a_whole_network_has_torchs_answers_and_gradients(size, decoder):
    spec = RunSpec(task=BumpTask(size=size, training="draws:12"), decoder=decoder)
    ensemble = Ensemble([spec], CPU)
    weights = ensemble.initial().weights[0].requires_grad_()
    inputs = ensemble.examples.inputs[:9]
    fast = ensemble.objective.decoder.lone_answers(weights, inputs)
    plain = ensemble.objective.answers(weights, inputs, torch.float32)
    near(fast, plain)
    scale = torch.randn(plain.shape, generator=torch.Generator().manual_seed(1))
    near(*(torch.autograd.grad((answers * scale).sum(), weights)[0] for answers in (fast, plain)))


@needs_compiler
def test_bits_do_not_depend_on_threads():
    spec = small_spec(CNN(width=32, depth=3), steps=6, batch=29)
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
def test_adamw_is_torchs(monkeypatch):
    chance = torch.Generator().manual_seed(0)
    states = [[torch.rand(3, 1000, generator=chance) for _ in range(3)]]
    states.append([part.clone() for part in states[0]])
    fields = {"mean_decay": 0.9, "square_decay": 0.999, "epsilon": 1e-8}
    rates = {"lr": torch.tensor([1e-3, 1e-2, 1e-3]), "weight_decay": torch.tensor([0.0, 0.1, 0.1])}
    steps = [torch.tensor([0, 3, 5]), torch.tensor([0, 3, 5])]
    for turn in range(4):
        gradient = torch.randn(3, 1000, generator=chance)
        active = torch.tensor([True, turn < 2, turn > 2])
        for state, step, use in zip(states, steps, (True, False), strict=True):
            monkeypatch.setattr(native, "available", lambda use=use: use)
            adamw_update(*state, step, gradient, active, **rates, **fields)
    for ours, theirs in zip(*states, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)


@needs_compiler
def test_training_without_them_is_the_same_within_rounding(monkeypatch):
    spec = small_spec(CNN(width=32, depth=2))
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


def test_widths_that_do_not_fit_are_torchs():
    assert not native.takes(24)
    decoder = small_spec(CNN(width=24, depth=1)).module()
    assert decoder.lone_answers(torch.zeros(0), torch.zeros(2, 28)) is None


SAYS = "from recombine import native; print(native.available(), native.why_not())"


def said(monkeypatch, **environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    done = subprocess.run([sys.executable, "-c", SAYS], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_without_a_compiler_there_are_none(monkeypatch, tmp_path):
    assert said(monkeypatch, CXX=str(tmp_path / "none")) == f"False no C++ compiler ({tmp_path / 'none'})"


def test_a_failing_compiler_is_one_line(monkeypatch, tmp_path):
    fake = tmp_path / "cc"
    fake.write_text("#!/bin/sh\necho 'x.cpp: error: bad' >&2\nexit 1\n")
    fake.chmod(0o755)
    found = said(monkeypatch, CXX=str(fake), RECOMBINE_CACHE=str(tmp_path / "cache"))
    assert found == "False cc failed: x.cpp: error: bad"
    assert not list((tmp_path / "cache").iterdir())


def test_a_variable_does_without(monkeypatch):
    assert said(monkeypatch, RECOMBINE_KERNELS="0") == "False RECOMBINE_KERNELS=0 says so"


@needs_compiler
def test_a_cache_that_cannot_be_written_to_is_done_without(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    assert said(monkeypatch, RECOMBINE_CACHE=str(tmp_path / "file")).startswith("False FileExistsError")


@needs_compiler
def test_kernels_are_compiled_once(monkeypatch, tmp_path):
    monkeypatch.setenv("RECOMBINE_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "_compile", lambda compiler, path: path.write_bytes(b"not a library"))
    build._found.cache_clear()
    try:
        assert "OSError" in build.why_not()
        (kept,) = tmp_path.iterdir()
        assert kept.name.startswith("kernels-")
        monkeypatch.setattr(build, "_compile", lambda compiler, path: pytest.fail("compiled again"))
        build._found.cache_clear()
        assert "OSError" in build.why_not()
    finally:
        build._found.cache_clear()
