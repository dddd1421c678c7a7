"""Faster ways to run many members, compared with running them member by member."""

import pytest
import torch
from torch.nn import functional

from recombine.decoders import DECODERS
from recombine.decoders.cnn import FromPoint, SameSize, ToChannels
from recombine.specs import RunSpec
from recombine.tasks import BumpTask
from recombine.training import Ensemble
from recombine.training.dispatch import FORWARDS
from tests.coloured import ColouredBumps
from tests.small import small_decoder, small_penalties

FASTER = {"cnn", "mlp", "low_rank", "transformer", "coordinate", "broadcast", "coordconv", "ladder"}
CPU = torch.device("cpu")


def test_which_decoders_have_a_faster_way():
    assert {name for name, kind in DECODERS.items() if kind in FORWARDS} == FASTER


CNNS = [(BumpTask(size=size, training="draws:20"), f"cnn:width=5:depth={depth}")
        for size, depth in ((6, 1), (14, 3), (20, 3))]  # fmt: skip
TASKS = (BumpTask(size=8, training="draws:20"), ColouredBumps(training="draws:30", holdout="none"))


@pytest.mark.parametrize(
    ("task", "decoder"), [*CNNS, *((task, small_decoder(name)) for name in sorted(FASTER) for task in TASKS)]
)
def test_faster_way_gives_the_same_losses_and_gradients(task, decoder):
    spec = RunSpec(task=task, decoder=decoder)
    spec = spec.replace(penalties=small_penalties(spec.decoder))
    ensemble = Ensemble(spec.seeds(range(3)), CPU)
    for name, weights in zip(ensemble.terms, ([0.1, 0.0, 0.3], [0.0, 0.2, 0.1], [0.3, 0.0, 0.1]), strict=False):
        ensemble.terms[name] = torch.tensor(weights)
    rows = torch.arange(12).view(3, 4) % len(ensemble.examples.inputs)
    shares = torch.rand(3, 4, generator=torch.Generator().manual_seed(0))
    state, active = ensemble.initial(), torch.ones(3, dtype=torch.bool)
    alone, expected = ensemble.gradients(state, rows, shares, active)
    ensemble.batched = True
    own, gradient = ensemble.gradients(state, rows, shares, active)
    for together, apart in ((own.total, alone.total), (own.error, alone.error), (gradient, expected)):
        torch.testing.assert_close(together, apart, rtol=1e-4, atol=1e-7)


def test_a_point_is_spread_as_a_transposed_convolution_does():
    module, codes = FromPoint(6, 4, 7), torch.randn(3, 6)
    expected = functional.conv_transpose2d(codes[:, :, None, None], module.weight, module.bias)
    torch.testing.assert_close(module(codes), expected)


@pytest.mark.parametrize("shape", [(8, 9), (3, 3), (1, 5)])
def test_same_size_is_the_transposed_convolution(shape):
    module, channels = SameSize(5, 4, 3, stride=1, padding=1), torch.randn(2, 5, *shape)
    expected = functional.conv_transpose2d(channels, module.weight, module.bias, padding=1)
    torch.testing.assert_close(module(channels), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("shape", [(8, 9), (3, 3), (1, 5)])
@pytest.mark.parametrize("colours", [1, 3])
def test_few_channels_are_the_convolution(shape, colours):
    module, channels = ToChannels(5, colours, 3, padding=1), torch.randn(2, 5, *shape)
    expected = functional.conv2d(channels, module.weight, module.bias, padding=1)
    torch.testing.assert_close(module(channels), expected, rtol=1e-4, atol=1e-6)
