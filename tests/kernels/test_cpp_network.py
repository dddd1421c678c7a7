"""The whole network on compiled kernels against torch, over random shapes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from recombine.decoders.cnn import Convolution
from recombine.kernels.cpp.network import BLOCK, TransposedConvolutions, _Plan
from recombine.kernels.shapes import NetworkShape
from tests.kernels.compiled import near, needs_compiler, threads


def network(code, first, channels, doubles):
    """Torch's own layers of a network of any first size and any order of blocks."""
    blocks = [Convolution(channels, channels, 4, 2, 1) if up else Convolution(channels, channels, 3, 1, 1)
              for up in doubles]  # fmt: skip
    layers = [nn.ConvTranspose2d(*block) for block in (Convolution(code, channels, first, 1, 0), *blocks)]
    return nn.Sequential(*layers, nn.Conv2d(channels, 1, 3, padding=1))


def shapes_of(module):
    """Shapes of all parameters, in order."""
    return tuple(tuple(parameter.shape) for parameter in module.parameters())


def images_of(vector, codes, shapes):
    return TransposedConvolutions.apply(vector, codes, shapes, torch.float32)


def filled(module, chance):
    """Whole numbers as weights, mostly zero, and biases that keep what goes into a ReLU away from zero, where rounding
    would decide which way a gradient goes: ½, ¼, ⅛ … layer by layer."""
    for depth, layer in enumerate(module):
        signs = torch.randint(0, 16, layer.weight.shape, generator=chance)
        layer.weight.data = (signs == 0).float() - (signs == 1).float()
        layer.bias.data = torch.randint(-2, 3, layer.bias.shape, generator=chance) + 0.5 ** (depth + 1)


@needs_compiler
@settings(max_examples=16, deadline=None)
@given(
    st.integers(1, 20), st.integers(1, 30), st.integers(1, 9), st.sampled_from([1, 5, 8, 16, 24, 32, 33, 48, 64]),
    st.lists(st.booleans(), max_size=3), st.integers(0, 99), st.sampled_from([1, 2, 3]),
)  # fmt: skip
def test_networks_agree_with_torch(batch, code, first, channels, doubles, seed, count):
    """Any first size, any order of layers; outputs and gradients of all parameters."""
    chance = torch.Generator().manual_seed(seed)
    module = network(code, first, channels, doubles)
    shapes = shapes_of(module)
    filled(module, chance)
    codes = torch.randint(-2, 3, (batch, code), generator=chance).float()
    side = first * 2 ** sum(doubles)
    scale = torch.randint(-2, 3, (batch, 1, side, side), generator=chance).float()
    image = codes[:, :, None, None].double()
    for layer in module.double()[:-1]:
        image = layer(image).relu()
    expected = module[-1](image)
    gradients = torch.autograd.grad((expected * scale).sum(), list(module.parameters()))
    vector = torch.cat([p.detach().float().flatten() for p in module.parameters()] + [torch.zeros(3)])
    vector.requires_grad_()
    with threads(count):
        images = images_of(vector, codes, shapes)
        (gradient,) = torch.autograd.grad((images * scale).sum(), vector)
    near(images, expected.float(), least=1.0)  # whole numbers went in, and may have cancelled to nothing
    sizes = [part.numel() for part in gradients]
    for ours, theirs in zip(gradient[:-3].split(sizes), gradients, strict=True):
        near(ours, theirs.flatten().float(), least=1.0)
    assert not gradient[-3:].any()


@needs_compiler
def test_nan_stays_nan():
    """A network that diverged must show it."""
    shapes = shapes_of(network(3, 2, 16, (True, False)))
    for position in (0, -1, 3 * 16 * 4 + 20):
        vector = torch.ones(sum(NetworkShape.of(shapes).sizes))
        vector[position] = torch.nan
        assert torch.isnan(images_of(vector, torch.ones(2, 3), shapes)).all()


@needs_compiler
def test_it_goes_backward_once():
    shapes = shapes_of(network(3, 2, 16, (False,)))
    vector = torch.ones(sum(NetworkShape.of(shapes).sizes), requires_grad=True)
    total = images_of(vector, torch.ones(2, 3), shapes).sum()
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="once"):
        total.backward()


@needs_compiler
def test_padding_has_no_gradient_and_no_part_in_the_outputs():
    """The same numbers as a network of whole blocks whose other channels are zero."""
    shapes, wide_shapes = (shapes_of(network(3, 2, channels, (True, False))) for channels in (5, BLOCK))
    plan = _Plan.of(shapes)
    vector = torch.randn(plan.parameters, generator=torch.Generator().manual_seed(0))
    wide = plan.padded(vector)
    assert len(wide) == _Plan.of(wide_shapes).parameters
    assert torch.equal(plan.cropped(wide, plan.parameters), vector)
    assert int((wide != 0).sum()) == len(vector)
    codes, ends = torch.ones(2, 3), []
    for own, parameters in ((shapes, vector), (wide_shapes, wide)):
        parameters = parameters.clone().requires_grad_()
        images = images_of(parameters, codes, own)
        ends.append((images, torch.autograd.grad(images.square().sum(), parameters)[0]))
    assert torch.equal(ends[0][0], ends[1][0])
    assert torch.equal(ends[0][1], plan.cropped(ends[1][1], plan.parameters))


@needs_compiler
@pytest.mark.parametrize(("numbers", "code", "dtype"), [(10, 3, "float32"), (9999, 4, "float32"), (9999, 3, "float64")])
def test_what_does_not_fit_is_refused(numbers, code, dtype):
    shapes, dtype = shapes_of(network(3, 2, 16, (False,))), getattr(torch, dtype)
    with pytest.raises(ValueError, match="must fit the network"):
        images_of(torch.ones(numbers, dtype=dtype), torch.ones(2, code, dtype=dtype), shapes)
    with pytest.raises(ValueError, match="must be those of transposed convolutions"):
        NetworkShape.of(shapes[:2])
