"""Compiled kernels against torch, over random shapes; and doing without them."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from recombine import native
from recombine.decoders import CNN
from recombine.native import build, kernels
from recombine.specs import RunSpec
from recombine.tasks import BumpTask
from recombine.training import Ensemble, fit
from tests.small import small_spec

CPU = torch.device("cpu")
needs_compiler = pytest.mark.skipif(not native.available(), reason=f"no kernels: {native.why_not()}")


def trained(spec):
    ensemble = Ensemble([spec], CPU)
    state = ensemble.initial()
    for _ in fit(ensemble, state):
        pass
    return state


def bordered(image):
    return functional.pad(image, (0, 0, 1, 1, 1, 1))


def last(image):
    return image.permute(0, 2, 3, 1)


@needs_compiler
@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([1, 3, 8, 11, 17]), st.integers(1, 17), st.integers(1, 17), st.sampled_from([16, 32, 48, 64]),
    st.sampled_from([16, 32, 48, 64]), st.booleans(), st.integers(0, 99), st.sampled_from([1, 2, 3]),
)  # fmt: skip
def test_convolutions_agree_with_torch(batch, height, width, channels, out, up, seed, threads):
    chance = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, channels, height, width, generator=chance).relu().requires_grad_()
    side = 4 if up else 3
    weight = (torch.randn(channels, out, side, side, generator=chance) / channels**0.5).requires_grad_()
    bias = torch.randn(out, generator=chance).requires_grad_()
    expected = functional.conv_transpose2d(x, weight, bias, stride=2 if up else 1, padding=1).relu()
    gradient = torch.randn(expected.shape, generator=chance)
    wanted = torch.autograd.grad(expected, (x, weight), gradient)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            image = bordered(last(x)).contiguous()
            answers = kernels.forward(image, weight, bias, up)
            z = bordered(last(gradient * (expected > 0))).contiguous()
            below, sums = kernels.input_gradient(z, weight, image, up)
            own = kernels.weight_gradient(image, z, up)
    finally:
        torch.set_num_threads(before)
    near(answers, bordered(last(expected)))
    passed = wanted[0] * (x > 0)
    near(below, bordered(last(passed)))
    near(sums, passed.sum(dim=(0, 2, 3)))
    near(own, wanted[1])


def near(found, expected):
    """To float32's accuracy, of the largest number: Winograd's sums have cancelled larger ones."""
    scale = max(float(expected.detach().abs().max()), 1.0)
    torch.testing.assert_close(found.detach(), expected.detach(), rtol=0, atol=3e-5 * scale)


@needs_compiler
@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([1, 8, 19]), st.integers(1, 20), st.integers(1, 20), st.sampled_from([16, 48]), st.integers(0, 99)
)
def test_drawing_agrees_with_torch(batch, height, width, channels, seed):
    chance = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, channels, height, width, generator=chance).relu().requires_grad_()
    weight = torch.randn(1, channels, 3, 3, generator=chance).requires_grad_()
    bias = torch.randn(1, generator=chance)
    expected = functional.conv2d(x, weight, bias, padding=1)
    gradient = torch.randn(expected.shape, generator=chance)
    wanted = torch.autograd.grad(expected, (x, weight), gradient)
    with torch.no_grad():
        image = bordered(last(x)).contiguous()
        near(kernels.draw(image, weight, bias), expected[:, 0])
        below, sums, own = kernels.undraw(image, weight, gradient[:, 0].contiguous())
    passed = wanted[0] * (x > 0)
    near(below, bordered(last(passed)))
    near(sums, passed.sum(dim=(0, 2, 3)))
    near(own, wanted[1])


@needs_compiler
@pytest.mark.parametrize(("size", "decoder"), [(7, "cnn:width=16:depth=1"), (10, "cnn:width=32:depth=2"),
                                               (14, "cnn:width=16:depth=3"), (28, "cnn:width=32:depth=4")])  # fmt: skip
def test_a_whole_network_has_torchs_answers_and_gradients(size, decoder):
    spec = RunSpec(task=BumpTask(size=size, training="draws:12"), decoder=decoder)
    ensemble = Ensemble([spec], CPU)
    weights = ensemble.initial().weights[0].requires_grad_()
    inputs = ensemble.examples.inputs[:9]
    named = ensemble.layout.unflatten(weights)
    fast = ensemble.objective.decoder.lone_answers(named, inputs)
    plain = ensemble.objective.answers(weights, inputs, torch.float32)
    near(fast, plain)
    scale = torch.randn(plain.shape, generator=torch.Generator().manual_seed(1))
    near(*(torch.autograd.grad((answers * scale).sum(), weights)[0] for answers in (fast, plain)))


@needs_compiler
def test_bits_do_not_depend_on_threads():
    before, ends = torch.get_num_threads(), []
    torch.manual_seed(0)
    x, weight, bias = torch.randn(32, 16, 16, 32).relu(), torch.randn(32, 32, 3, 3), torch.randn(32)
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            y = kernels.forward(x, weight, bias, False)
            below, sums = kernels.input_gradient(y, weight, x, False)
            ends.append([y, below, sums, kernels.weight_gradient(x, y, False)])
    finally:
        torch.set_num_threads(before)
    for other in ends[1:]:
        assert all(torch.equal(one, two) for one, two in zip(ends[0], other, strict=True))


@needs_compiler
def test_training_without_them_is_the_same_within_rounding(monkeypatch):
    spec = small_spec(CNN(width=32, depth=2))
    fast = trained(spec)
    monkeypatch.setattr(native, "available", lambda: False)
    plain = trained(spec)
    assert not torch.equal(fast.weights, plain.weights)
    assert torch.allclose(fast.errors[0], plain.errors[0], rtol=1e-3)


def test_widths_that_do_not_fit_are_torchs():
    assert not native.takes(24)
    decoder = small_spec(CNN(width=24, depth=1)).module()
    named = dict(decoder.named_parameters())
    assert decoder.lone_answers(named, torch.zeros(2, 28)) is None


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
