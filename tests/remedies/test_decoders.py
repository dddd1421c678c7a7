"""Each decoder composes a planted function that it should compose, where a network without its structure does not."""

import pytest
import torch
from torch.nn import functional

from recombine.decoders import DECODERS, Interface

VALUES, SIDE = 7, 6
GRID = torch.cartesian_prod(torch.arange(VALUES), torch.arange(VALUES))
HELD_OUT = ((GRID >= 2) & (GRID <= 4)).all(dim=1)
ONE_HOT = functional.one_hot(GRID, VALUES).float().flatten(1)
RATE = GRID / (VALUES - 1) * 2 - 1
PLACES = torch.linspace(-1, 1, SIDE)


def images(seed):
    """One random image per value of a factor."""
    return torch.rand(VALUES, SIDE, SIDE, generator=torch.Generator().manual_seed(seed))


def added():
    return images(0)[GRID[:, 0]] + images(1)[GRID[:, 1]]


def multiplied():
    return images(0)[GRID[:, 0]] * images(1)[GRID[:, 1]]


def occluded():
    front = 8 * functional.relu(images(0) - 0.5)[GRID[:, 0]]
    return front * torch.sigmoid(front) + images(1)[GRID[:, 1]] * torch.sigmoid(-front)


def distances():
    """Each pixel's distance to the place (x, y): the same function of pixel minus place everywhere."""
    x, y = RATE[:, 0, None, None], RATE[:, 1, None, None]
    return (PLACES - x).abs() + (PLACES[:, None] - y).abs()


PLANTED = {
    "additive:base=(mlp:width=32:depth=1)": added,
    "occlusion:base=(mlp:width=32:depth=1)": occluded,
    "multilinear:base=(mlp:width=32:depth=1):rank=1": multiplied,
    "broadcast:width=16:depth=1": distances,
    "coordconv:width=16:depth=1": distances,
    "implicit:width=32:depth=1:activation=relu": distances,
    "implicit:width=32:depth=1:frequency=3": distances,
    "coordinate:width=32:depth=1": distances,
    "hypernetwork:width=16:depth=1": distances,
    "hypernetwork:width=16:depth=1:form=film": distances,
    "cross_attention:width=16:depth=1": distances,
}


def held_out_error(decoder, targets, steps=250):
    """Held-out error over the variance of the targets, after training on the rest."""
    torch.manual_seed(0)
    codes = RATE if targets is distances else ONE_HOT
    images = targets()
    size = codes.shape[1] // 2
    module = DECODERS.parse(decoder).build(Interface((size, size), (SIDE, SIDE)))
    optimiser = torch.optim.Adam(module.parameters(), lr=0.01)
    for _ in range(steps):
        optimiser.zero_grad()
        (module(codes[~HELD_OUT]) - images[~HELD_OUT]).square().mean().backward()
        optimiser.step()
    return ((module(codes[HELD_OUT]) - images[HELD_OUT]).square().mean() / images.var()).item()


@pytest.mark.parametrize("decoder", PLANTED)
def test_it_composes_what_it_should(decoder):
    assert held_out_error(decoder, PLANTED[decoder]) < 0.05


@pytest.mark.parametrize(
    ("decoder", "targets"), [("mlp:width=32:depth=2", multiplied), ("cnn:width=16:depth=1", distances)]
)
def test_others_do_not(decoder, targets):
    assert held_out_error(decoder, targets) > 0.1


@pytest.mark.parametrize("heads", [1, 2])
def test_the_interaction_of_attention_is_zero_where_pixels_look_at_one_factor(heads):
    text = f"cross_attention:width=8:depth=1:heads={heads}"
    module = DECODERS.parse(text).build(Interface((VALUES, VALUES), (SIDE, SIDE)))
    layer = module.stages["layer1"]
    with torch.no_grad():
        for part in (layer.query, layer.key):
            part.weight.zero_()
            part.bias.zero_()
        assert module.interaction(ONE_HOT).item() == pytest.approx(
            (heads / 2) ** 2, abs=1e-6
        )  # equal attention to both
        layer.query.bias.fill_(1e4)
        layer.key.weight[:1] = torch.randn(1, 8)
        layer.key.weight[-1:] = layer.key.weight[:1]  # all heads look at the same factor
        assert module.interaction(ONE_HOT).item() == pytest.approx(0, abs=1e-2)


def test_occlusion_shows_the_front_where_it_is_bright():
    decoder = DECODERS.parse("occlusion")
    front, behind = torch.full((1, 4), 50.0), torch.full((1, 4), 7.0)
    assert torch.allclose(decoder.combined(torch.stack([front, behind], dim=1)[:, :, None], 1), front)
    assert torch.allclose(decoder.combined(torch.stack([-front, behind], dim=1)[:, :, None], 1), behind)
