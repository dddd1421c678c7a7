"""Each decoder and penalty composes a planted function that it should compose, where a plain network does not."""

from functools import cache

import pytest
import torch
from torch.nn import functional

from recombine.decoders import DECODERS, Interface
from recombine.errors import InvalidValue
from recombine.remedies import REMEDIES

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


def separated():
    """Every other row of pixels reads one factor."""
    rows = torch.arange(SIDE)[:, None] % 2 == 0
    return torch.where(rows, images(0)[GRID[:, 0]], images(1)[GRID[:, 1]])


def occluded():
    front = 8 * functional.relu(images(0) - 0.5)[GRID[:, 0]]
    return front * torch.sigmoid(front) + images(1)[GRID[:, 1]] * torch.sigmoid(-front)


def distances():
    """Each pixel's distance to the place (x, y): the same function of pixel minus place everywhere."""
    x, y = RATE[:, 0, None, None], RATE[:, 1, None, None]
    return (PLACES - x).abs() + (PLACES[:, None] - y).abs()


PLANTED = {
    "additive:base=(mlp:width=32:depth=1)": (added, 60, 0.03),
    "occlusion:base=(mlp:width=32:depth=1)": (occluded, 60, 0.03),
    "multilinear:base=(mlp:width=32:depth=1):rank=1": (multiplied, 60, 0.03),
    "broadcast:width=16:depth=1": (distances, 60, 0.03),
    "coordconv:width=16:depth=1": (distances, 250, 0.01),
    "ladder:width=16:depth=1": (distances, 90, 0.05),
    "ladder:width=32:depth=2:pixelwise=true": (distances, 90, 0.05),
    "implicit:width=32:depth=1:activation=relu": (distances, 60, 0.03),
    "implicit:width=32:depth=1:frequency=3": (distances, 60, 0.05),
    "coordinate:width=32:depth=1": (distances, 120, 0.05),
    "hypernetwork:width=16:depth=1": (distances, 150, 0.03),
    "hypernetwork:width=16:depth=1:form=film": (distances, 250, 0.03),
    "cross_attention:width=16:depth=1": (distances, 100, 0.03),
    "low_rank:depth=0": (added, 300, 0.05),
}
PENALTIES = {
    "hessian:weight=1e-4:rows=1:where=all": (added, 300, 0.01),
    "mixup:weight=1": (added, 300, 0.01),
    "contrast:weight=1e-4:rows=1:where=all": (separated, 150, 0.02),
    "exact_contrast:weight=1e-4:rows=1:where=all": (separated, 100, 0.02),
    "orthogonal_jacobian:weight=1e-6:rows=1:where=all": (separated, 100, 0.02),
    "jacobian_l1:weight=1e-5:rows=1:where=all": (separated, 100, 0.02),
    "consistency:weight=0.1:rows=1": (separated, 200, 0.01),
}
"""What each composes, and the steps and the learning rate that this takes: few, since tests wait for them."""


@cache
def held_out_error(decoder, targets, steps=250, lr=0.01, penalty=None):
    """Held-out error over the variance of the targets, after training on the rest."""
    torch.manual_seed(0)
    codes = RATE if targets is distances else ONE_HOT
    images = targets()
    size = codes.shape[1] // 2
    interface = Interface((size, size), (SIDE, SIDE))
    module = DECODERS.parse(decoder).build(interface)
    if penalty:
        remedy = REMEDIES.parse(penalty)
        module.auxiliary = remedy.auxiliary(interface)
    optimiser = torch.optim.Adam(module.parameters(), lr=lr, fused=True)
    for _ in range(steps):
        optimiser.zero_grad()
        kept = codes[~HELD_OUT]
        loss = (module(kept) - images[~HELD_OUT]).square().mean()
        if penalty:
            loss = loss + remedy.weight * remedy.loss(module, kept[torch.randperm(len(kept))], (size, size), None)
        loss.backward()
        optimiser.step()
    return ((module(codes[HELD_OUT]) - images[HELD_OUT]).square().mean() / images.var()).item()


@pytest.mark.parametrize("decoder", PLANTED)
def test_it_composes_what_it_should(decoder):
    assert held_out_error(decoder, *PLANTED[decoder]) < 0.05


@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_penalty_helps_where_it_should(penalty):
    plain = "mlp:width=32:depth=2", *PENALTIES[penalty]
    assert held_out_error(*plain, penalty) < 0.6 * held_out_error(*plain)


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


def test_the_width_is_a_multiple_of_the_heads():
    with pytest.raises(InvalidValue, match="width must be a multiple of heads"):
        DECODERS.parse("cross_attention:width=8:heads=3")


def test_occlusion_shows_the_front_where_it_is_bright():
    decoder = DECODERS.parse("occlusion")
    front, behind = torch.full((1, 4), 50.0), torch.full((1, 4), 7.0)
    assert torch.allclose(decoder.combined(torch.stack([front, behind], dim=1)[:, :, None], 1), front)
    assert torch.allclose(decoder.combined(torch.stack([-front, behind], dim=1)[:, :, None], 1), behind)
