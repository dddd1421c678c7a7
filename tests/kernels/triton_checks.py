"""Triton's kernels against torch, over random shapes: `python -m tests.kernels.triton_checks cpu|cuda [TIMES]`.

A process of its own, since Triton's interpreter is chosen when kernels are made (TRITON_INTERPRET=1).
"""

import sys

import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch.nn import functional

from recombine.decoders import CNN, BroadcastDecoder, CoordConvDecoder, LadderDecoder, LowRankEmbedding
from recombine.decoders.base import Interface, build_seeded
from recombine.decoders.low_rank import EmbeddingParts
from recombine.kernels.triton import adamw, convolution, network
from recombine.kernels.triton.attention import Attention
from recombine.kernels.triton.distance import PixelMeans
from recombine.kernels.triton.narrow import NarrowConvolution
from recombine.kernels.triton.tokens import Activated, Normed
from recombine.training.adamw import adamw_update
from recombine.training.convolutional import broadcast_planes, coordconv_planes, ladder_planes, resized
from recombine.training.dispatch import KernelParts
from recombine.training.members import FlatLayout, module_members

DEVICE = torch.device(sys.argv[1])
TIMES = int(sys.argv[2]) if len(sys.argv) > 2 else 4
"""With more, more shapes are tried."""
SMALL = st.integers(1, 3)
convolution.WIDE = 32  # both forms of a product are tried
torch.backends.cudnn.allow_tf32 = False  # what they are compared with is strict


TINY = ((1, 1), (0, 0), (0, 1), (1e-13, 1), (1, 1e-7), (1, 1e-20))
"""Sizes of a member's vectors and strengths."""


def tried(check, *strategies):
    """Try random shapes, the same ones each time: rounding may exceed a tolerance, or decide a ReLU."""
    settings(max_examples=2 * TIMES, deadline=None, phases=[Phase.generate], derandomize=True)(
        given(*strategies)(check)
    )()


def close(actual, expected, rtol=1e-4):
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=1e-4)


def convolutions(members, batch, height, width, channels, out, up, seed):
    chance = torch.Generator(DEVICE).manual_seed(seed)
    x = torch.randn(members, batch, height, width, channels, generator=chance, device=DEVICE).relu()
    side = 4 if up else 3
    w = torch.randn(members, channels, out, side, side, generator=chance, device=DEVICE) * 0.1
    bias = torch.randn(members, out, generator=chance, device=DEVICE)
    leaves = [part.clone().requires_grad_() for part in (x.permute(0, 1, 4, 2, 3), w, bias)]
    expected = torch.stack(
        [
            functional.conv_transpose2d(a, b, c, stride=2 if up else 1, padding=1)
            for a, b, c in zip(*leaves, strict=True)
        ]
    ).relu()
    taps, turned = convolution.laid_out(w, torch.float32)
    assert torch.equal(taps, w.flatten(3).permute(0, 3, 1, 2))
    outputs = convolution.forward(convolution.bordered(x), taps, bias, up)
    close(outputs, convolution.bordered(expected.permute(0, 1, 3, 4, 2)))
    gradient = torch.randn(expected.shape, generator=chance, device=DEVICE)
    expected_gradients = torch.autograd.grad(expected, leaves, gradient)
    z = (gradient * (expected > 0)).permute(0, 1, 3, 4, 2).contiguous()
    z, x = convolution.bordered(z), convolution.bordered(x)
    below, sums = convolution.input_gradient(z, turned, x, up)
    passed = expected_gradients[0] * (leaves[0] > 0)
    close(below, convolution.bordered(passed.permute(0, 1, 3, 4, 2)))
    close(sums, passed.sum(dim=(1, 3, 4)))
    close(convolution.weight_gradient(x, z, up).unflatten(-1, (side, side)), expected_gradients[1])


def narrow_convolution(members, batch, height, width, channels, out, seed):
    chance = torch.Generator(DEVICE).manual_seed(seed)
    shapes = (members, batch, channels, height, width), (members, out, channels, 3, 3), (members, out)
    leaves = [torch.randn(shape, generator=chance, device=DEVICE).requires_grad_() for shape in shapes]
    expected = torch.stack([functional.conv2d(a, b, c, padding=1) for a, b, c in zip(*leaves, strict=True)])
    images = NarrowConvolution.apply(*leaves)
    close(images, expected)
    scale = torch.randn(expected.shape, generator=chance, device=DEVICE)
    for ours, theirs in zip(*(torch.autograd.grad((y * scale).sum(), leaves) for y in (images, expected)), strict=True):
        close(ours, theirs)


def embedding(members, code_sizes, side, unit, sizes, seed):
    """Images and penalties; the first member's vectors and strengths may be so small that norms have a floor."""
    chance = torch.Generator(DEVICE).manual_seed(seed)
    layout = FlatLayout(dict(LowRankEmbedding(tuple(code_sizes), (side, side + 1)).named_parameters()))
    weights = torch.randn(members, layout.size, generator=chance, device=DEVICE)
    for name, part in layout.unflatten(weights).items():
        part[0] *= sizes[name.startswith("strengths")]
    weights.requires_grad_()
    parts = [
        [part for name, part in layout.unflatten(weights).items() if name.startswith(kind)]
        for kind in ("rows", "columns", "strengths")
    ]
    codes = torch.rand(members, 3, sum(code_sizes), generator=chance, device=DEVICE)
    ends = []
    for way in (KernelParts, EmbeddingParts):
        embedded = way(*parts, unit)
        results = [embedded.rendered(codes), *embedded.penalties().values()]
        scale = [torch.linspace(0.5, 2, r.numel(), device=DEVICE).view_as(r) for r in results]
        total = sum((r * s).sum() for r, s in zip(results, scale, strict=True))
        ends.append([*results, torch.autograd.grad(total, weights)[0]])
    for ours, theirs in zip(*ends, strict=True):
        close(ours, theirs, rtol=1e-3)  # gradients through a norm near its floor are large


def distances(members, batch, side, rough, seed):
    """Of outputs whose axes lie in another order; and gradients that are one number for all."""
    chance = torch.Generator(DEVICE).manual_seed(seed)
    outputs = torch.randn(members, side, batch, side + 1, generator=chance, device=DEVICE).transpose(1, 2)
    targets = torch.randn(side + 1, side, batch, members, generator=chance, device=DEVICE).permute(3, 2, 1, 0)
    outputs = (outputs.bfloat16() if rough else outputs).requires_grad_()
    with torch.no_grad():
        targets[0, 0, 0, 0] = outputs[0, 0, 0, 0]  # no difference has no direction
    away = (outputs.float() - targets).flatten(2)
    expected, means = (away.square().mean(dim=2), away.abs().mean(dim=2)), PixelMeans.apply(outputs, targets)
    scale = torch.randn(2, members, 1, generator=chance, device=DEVICE).expand(-1, -1, batch)
    slopes = [torch.autograd.grad(pair, outputs, tuple(scale))[0] for pair in (means, expected)]
    assert slopes[0].dtype == outputs.dtype
    for ours, theirs in zip((*means, slopes[0].float()), (*expected, slopes[1].float()), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-2 if rough else 1e-4, atol=1e-5)


def same_gradients(ours, expected, leaves, chance):
    close(ours, expected)
    gradient = torch.randn(expected.shape, generator=chance, device=DEVICE)
    for one, other in zip(*(torch.autograd.grad(way, leaves, gradient) for way in (ours, expected)), strict=True):
        close(one, other, rtol=1e-3)


def layers(members, rows, width, seed):
    """ReLU and PReLU of products plus a bias, also where the slope is negative; and layer norm of a sum."""
    chance = torch.Generator(DEVICE).manual_seed(seed)
    shapes = [(members, rows, width)] * 2 + [(members, width)] * 3 + [(members, 1)]
    x, z, bias, gain, shift, slope = (
        torch.randn(shape, generator=chance, device=DEVICE).requires_grad_() for shape in shapes
    )
    value = z + bias[:, None]
    same_gradients(Activated.apply(z, bias, None), value.relu(), [z, bias], chance)
    curved = torch.where(value > 0, value, value * slope[:, None])
    same_gradients(Activated.apply(z, bias, slope), curved, [z, bias, slope], chance)
    z.data[0, 0, 0] = torch.nan
    for way in (Activated.apply(z, bias, None), Activated.apply(z, bias, slope)):
        assert torch.equal(torch.isnan(way), torch.isnan(z))
    z.data[0, 0, 0] = 0
    value = z + bias[:, None]
    if width > 2:  # a norm of two numbers is ±1, whatever they are
        expected = functional.layer_norm(x + value, (width,)) * gain[:, None] + shift[:, None]
        same_gradients(Normed.apply(x, z, bias, gain, shift), expected, [x, z, bias, gain, shift], chance)


def attention(sequences, tokens, heads, depth, seed):
    chance = torch.Generator(DEVICE).manual_seed(seed)
    mixed = torch.randn(sequences, tokens, 3, heads, depth, generator=chance, device=DEVICE).requires_grad_()
    query, key, value = mixed.permute(2, 0, 3, 1, 4).unbind(0)
    expected = torch.softmax(query @ key.mT / depth**0.5, dim=-1) @ value
    same_gradients(Attention.apply(mixed), expected.transpose(1, 2), [mixed], chance)


PLANES = {BroadcastDecoder: broadcast_planes, LadderDecoder: ladder_planes, CoordConvDecoder: coordconv_planes}


def networks(spec, size, colours, seed):
    """Of CNNs, and of other decoders that are made of the same blocks, compared with their modules."""
    chance = torch.Generator(DEVICE).manual_seed(seed)
    interface = Interface((4,), (colours, size, size) if colours > 1 else (size, size))
    decoder, *others = (build_seeded(spec, interface, seed + k).to(DEVICE) for k in range(2))
    layout = FlatLayout(dict(decoder.named_parameters()))
    weights = torch.stack([layout.flatten(dict(own.named_parameters())) for own in (decoder, *others)]).requires_grad_()
    codes = torch.rand(2, 3, 4, generator=chance, device=DEVICE)
    if type(spec) is CNN:
        images = resized(decoder, network.images(weights, codes, layout.shapes, torch.float32))
    else:
        images = resized(decoder, PLANES[type(spec)](network, decoder, layout.unflatten(weights), codes))
    expected = module_members(decoder, layout, weights, codes, torch.float32).outputs
    same_gradients(images.view_as(expected), expected, [weights], chance)


def optimiser():
    """Against the same formula in double precision, on a CPU; members come and go."""
    chance = torch.Generator().manual_seed(0)
    theirs = [torch.rand(3, 1500, generator=chance, dtype=torch.float64) for _ in range(3)]
    ours = [part.float().to(DEVICE) for part in theirs]
    theirs = [part.cpu().double() for part in ours]
    rate, decay = torch.tensor([1e-3, 1e-2, 1e-3]), torch.tensor([0.0, 0.1, 0.1])
    step, betas, epsilon = torch.tensor([0, 3, 5]), (0.9, 0.9999), 1e-8
    for turn in range(4):
        gradient = torch.randn(3, 1500, generator=chance)
        active = torch.tensor([True, turn < 2, turn > 2])
        adamw_update(
            *theirs, step, gradient.double(), active, lr=rate, weight_decay=decay,
            beta1=betas[0], beta2=betas[1], epsilon=epsilon,
        )  # fmt: skip
        now, count = torch.where(active, rate.double(), 0.0), step.double()
        numbers = [1 - now * decay.double(), now / (1 - betas[0] ** count), (1 - betas[1] ** count).sqrt()]
        numbers = [part.float().to(DEVICE) for part in numbers]
        adamw.adamw_update(*ours, gradient.to(DEVICE), active.to(DEVICE), *numbers, *betas, epsilon)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.cpu().double(), other, rtol=2e-6, atol=1e-7)


if __name__ == "__main__":
    optimiser()
    convolutions(2, 1, 1, 2, 16, 32, True, 0)  # in CI, a small shape of each kind: the interpreter takes its time
    convolutions(1, 2, 2, 1, 32, 16, False, 0)
    narrow_convolution(2, 1, 3, 2, 2, 3, 0)
    narrow_convolution(1, 1, 17, 17, 1, 16, 0)  # sums that take several turns: more than 16 parts of 16 pixels
    for sizes in TINY:
        embedding(2, [2], 3, True, sizes, 0)
    embedding(1, [2], 3, False, (1, 1), 0)
    distances(2, 1, 5, True, 0)
    distances(1, 2, 33, False, 0)
    layers(2, 5, 7, 0)
    layers(1, 3000, 8, 0)  # programs that take several tiles
    attention(1, 130, 1, 7, 0)  # several tiles of queries and keys
    networks(CNN(width=16, depth=1), 7, 1, 0)
    networks(CNN(width=16, depth=1), 7, 3, 0)
    networks(BroadcastDecoder(width=16, depth=2), 5, 3, 0)
    networks(CoordConvDecoder(width=16, depth=2), 14, 1, 0)
    networks(LadderDecoder(width=16, depth=2, start="seed"), 9, 1, 0)
    if TIMES > 1:
        side, channels, coin, seed = st.integers(1, 6), st.sampled_from([16, 32]), st.booleans(), st.integers(0, 99)
        codes = st.lists(st.integers(1, 5), min_size=1, max_size=2)
        tried(convolutions, SMALL, SMALL, side, side, channels, channels, coin, seed)
        tried(narrow_convolution, SMALL, SMALL, side, side, SMALL, SMALL, seed)
        tried(embedding, SMALL, codes, st.integers(1, 40), coin, st.sampled_from(TINY), seed)
        tried(distances, SMALL, SMALL, st.sampled_from([1, 5, 33]), coin, seed)
        tried(layers, SMALL, st.integers(1, 70), st.sampled_from([3, 16, 200]), seed)
        tried(attention, SMALL, st.integers(1, 150), SMALL, st.sampled_from([1, 16, 40]), seed)
        depth = st.integers(1, 3)
        sizes = {"width": st.just(16), "depth": depth}
        decoders = [st.builds(kind, **sizes) for kind in (CNN, BroadcastDecoder, CoordConvDecoder)]
        start = st.sampled_from(["seed", "broadcast"])
        ladder = st.builds(LadderDecoder, **sizes, start=start, coordinates=coin, pixelwise=coin)
        tried(networks, st.one_of(*decoders, ladder), st.sampled_from([5, 10, 14]), SMALL, seed)
    print("same")
