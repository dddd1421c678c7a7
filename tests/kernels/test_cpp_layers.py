"""Narrow convolutions and AdamW on compiled kernels against torch; and how all kernels are called."""

import contextlib
import ctypes
import re
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from recombine import kernels
from recombine.decoders import LowRank
from recombine.kernels.cpp import build
from recombine.kernels.cpp.narrow import NarrowConvolution
from recombine.training import Ensemble
from recombine.training.adamw import adamw_update
from tests.kernels.compiled import CPU, near, needs_compiler, threads
from tests.small import small_spec


@needs_compiler
@settings(max_examples=16, deadline=None)
@given(
    st.integers(1, 20), st.integers(1, 5), st.integers(1, 5), st.integers(1, 40), st.integers(1, 40), st.booleans(),
    st.integers(0, 99), st.sampled_from([1, 2]),
)  # fmt: skip
def test_narrow_convolutions_agree_with_torch(batch, channels, out, height, width, below, seed, count):
    chance = torch.Generator().manual_seed(seed)
    shapes = (batch, channels, height, width), (out, channels, 3, 3), (out,)
    x, w, bias = (torch.randn(shape, generator=chance) for shape in shapes)
    x, w = x.transpose(2, 3).contiguous().transpose(2, 3), w.flip(0)
    leaves = [x.requires_grad_(below), w.requires_grad_(), bias.requires_grad_()]
    learnt = leaves if below else leaves[1:]
    with threads(count):
        images = NarrowConvolution.apply(*leaves)
        ours = torch.autograd.grad(images.square().sum() / 2, learnt)
    expected = functional.conv2d(*(leaf.double() for leaf in leaves), padding=1)
    theirs = torch.autograd.grad(expected.square().sum() / 2, learnt)
    assert images.shape == (batch, out, height, width)
    near(images, expected.float(), least=1.0)
    for one, other in zip(ours, theirs, strict=True):
        near(one, other.float(), least=1.0)


@needs_compiler
@pytest.mark.parametrize(
    ("images", "weights", "biases"),
    [((1, 2, 4, 4), (3, 1, 3, 3), (3,)), ((1, 2, 4, 4), (3, 2, 3, 3), (2,))],
)
def test_narrow_convolutions_that_do_not_fit_are_refused(images, weights, biases):
    with pytest.raises(ValueError, match="do not fit"):
        NarrowConvolution.apply(*(torch.ones(shape) for shape in (images, weights, biases)))


@needs_compiler
@pytest.mark.parametrize("vectors", ["unit", "raw"])
def test_a_low_rank_network_has_torchs_outputs_penalties_and_gradients(vectors):
    spec = small_spec(LowRank(vectors=vectors, depth=2), absolute=0.1)
    spec = spec.replace(penalties=("entropy:weight=0.3", "variance:weight=0.2"))
    ensemble = Ensemble([spec], CPU)
    weights = ensemble.initial().weights[0].requires_grad_()
    state, rows = ensemble.initial(), torch.arange(9)
    batch = ensemble._batch(rows, torch.full((9,), 1 / 9), state.step[0], state.buffers[0], 0)
    assert ensemble.objective.fast_outputs(weights, batch.inputs) is not None, "the kernels did not take it"
    ends = []
    for way in (contextlib.nullcontext(), kernels.without("narrow")):
        with way:
            total, error, _ = ensemble.objective.loss(weights, batch)
        ends.append((total, error, torch.autograd.grad(total, weights)[0]))
    for one, other in zip(*ends, strict=True):
        near(one, other)


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


TYPES = {
    "long": ctypes.c_long, "float": ctypes.c_float, "float*": ctypes.c_void_p, "long*": ctypes.POINTER(ctypes.c_long)
}  # fmt: skip


def test_signatures_are_those_of_the_sources():
    """Every function that the library exports, argument by argument."""
    declared = {}
    for source in sorted(Path(build.__file__).parent.glob("*.cpp")):
        for name, arguments in re.findall(r"void recombine_(\w+)\(([^)]*)\)", source.read_text()):
            words = [re.sub(r"\bconst |\b__restrict ", "", " ".join(part.split())) for part in arguments.split(",")]
            declared[name] = tuple(TYPES[word.rsplit(" ", 1)[0]] for word in words)
    assert declared == build.SIGNATURES
