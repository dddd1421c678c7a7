"""Training on compiled kernels: the same bits on any number of threads, torch's results within rounding."""

import pytest
import torch

from recombine import kernels
from recombine.decoders import CNN, LowRank
from recombine.kernels.cpp import network
from recombine.kernels.cpp.chunks import MAX_CHUNKS, chunks_of
from tests.kernels.compiled import near, needs_compiler, threads, trained
from tests.small import small_spec


@needs_compiler
@pytest.mark.parametrize("decoder", [CNN(width=32, depth=3), LowRank()], ids=["cnn", "low_rank"])
def test_bits_do_not_depend_on_threads(decoder):
    spec, ends = small_spec(decoder, steps=6, batch=29), []
    for count in (1, 2, 3):
        with threads(count):
            ends.append(trained(spec).weights)
    assert torch.equal(ends[0], ends[1])
    assert torch.equal(ends[0], ends[2])


@needs_compiler
def test_large_batches_are_in_few_chunks():
    """Each chunk has sums of its own, as large as the weights."""
    spec = small_spec(CNN(width=16, depth=2), batch=300, steps=2, task={"training": "draws:300"})
    assert torch.isfinite(trained(spec).weights).all()
    assert len(chunks_of(300)) == MAX_CHUNKS
    assert [last - first for first, last, _ in chunks_of(32)] == [8] * 4


@needs_compiler
@pytest.mark.parametrize("decoder", [CNN(width=32, depth=2), LowRank()], ids=["cnn", "low_rank"])
@pytest.mark.parametrize("off", [(), ("network", "narrow"), ("adamw",)], ids=["all", "network and narrow", "adamw"])
def test_training_without_them_is_the_same_within_rounding(decoder, off):
    spec = small_spec(decoder)
    fast = trained(spec)
    with kernels.without(*off):
        plain = trained(spec)
    assert not torch.equal(fast.weights, plain.weights)
    assert torch.allclose(fast.errors[0], plain.errors[0], rtol=1e-3)


@needs_compiler
@pytest.mark.parametrize("width", [8, 24])
def test_widths_that_are_no_whole_blocks_train_padded(width, monkeypatch):
    """To torch's weights within rounding; AdamW sees the network's own parameters alone."""
    spec, seen = small_spec(CNN(width=width, depth=2), steps=8), []
    original = network.TransposedConvolutions.apply

    def counted(weights, codes, shapes, dtype):
        seen.append(shapes[0][1])
        return original(weights, codes, shapes, dtype)

    monkeypatch.setattr(network.TransposedConvolutions, "apply", counted)
    fast = trained(spec)
    assert seen == [width] * 8
    with kernels.without():
        plain = trained(spec)
    assert len(seen) == 8
    assert fast.weights.shape == fast.mean.shape == plain.weights.shape
    assert torch.allclose(fast.errors[0], plain.errors[0], rtol=1e-4)
    near(fast.weights, plain.weights)
