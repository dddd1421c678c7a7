"""Penalties on derivatives, against slow versions by autograd and known answers."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from recombine.decoders import StagedDecoder
from recombine.remedies import REMEDIES
from recombine.remedies.contrast import compositional_contrast, squared_contrast
from recombine.remedies.cross_term import cross_term, value_directions
from recombine.remedies.derivatives import recombined
from recombine.remedies.hessian import exact_hessian_penalty, hessian_penalty
from recombine.remedies.jacobian import exact_orthogonal_jacobian, jacobian_l1, orthogonal_jacobian
from recombine.remedies.noise import Noise, normal, signs, uniform

BLOCKS = (2, 3, 1)


@pytest.fixture
def smooth():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 12), nn.Unflatten(1, (3, 4)))


def slow_jacobian(decode, codes):
    """`(batch, output, code)`, by reverse-mode autograd, one output at a time."""
    rows = [torch.autograd.functional.jacobian(lambda code: decode(code[None]).flatten(), code) for code in codes]
    return torch.stack(rows)


def pairs(blocks):
    ends = [sum(blocks[:k]) for k in range(len(blocks) + 1)]
    slices = [slice(*bounds) for bounds in pairwise(ends)]
    return [(a, b) for k, a in enumerate(slices) for b in slices[k + 1 :]]


def test_contrast_equals_the_definition(smooth):
    codes = torch.rand(4, 6)
    rows = slow_jacobian(smooth, codes)
    expected = sum((rows[..., a].norm(dim=-1) * rows[..., b].norm(dim=-1)).sum(dim=-1).mean() for a, b in pairs(BLOCKS))
    torch.testing.assert_close(compositional_contrast(smooth, codes, BLOCKS), expected, rtol=1e-5, atol=1e-5)


def test_squared_contrast_is_unbiased(smooth):
    codes = torch.rand(1, 6)
    rows = slow_jacobian(smooth, codes)
    squares = ((rows[..., a].square().sum(dim=-1) * rows[..., b].square().sum(dim=-1)).sum() for a, b in pairs(BLOCKS))
    values = squared_contrast(smooth, codes.expand(20_000, -1), BLOCKS, torch.Generator().manual_seed(1))
    torch.testing.assert_close(values, sum(squares), rtol=0.05, atol=0)


def test_hessian_equals_the_definition(smooth):
    codes = torch.rand(3, 6)
    expected = []
    for code in codes:
        for output in range(12):
            hessian = torch.autograd.functional.hessian(lambda z, k=output: smooth(z[None]).flatten()[k], code)
            expected.append(sum(4 * hessian[a, b].square().sum() for a, b in pairs(BLOCKS)))
    torch.testing.assert_close(
        exact_hessian_penalty(smooth, codes, BLOCKS), torch.stack(expected).mean(), rtol=1e-5, atol=1e-5
    )


def test_hessian_differences_agree_in_expectation():
    """Of a product of sums, whose second differences are exact; a fixed direction per call, so many calls."""
    torch.manual_seed(0)
    left, right = torch.rand(2).double(), torch.rand(3).double()
    codes = torch.zeros(20_000, 5, dtype=torch.float64)
    decode = lambda codes: (codes[:, :2] @ left) * (codes[:, 2:] @ right)  # noqa: E731
    value = hessian_penalty(decode, codes, (2, 3), torch.Generator().manual_seed(0), reduction="mean")
    expected = 4 * left.square().sum() * right.square().sum()
    torch.testing.assert_close(value, expected, rtol=0.1, atol=0)


@pytest.mark.parametrize(("function", "expected"), [
    (lambda z: z[:, 0] * z[:, 1], 4.0),
    (lambda z: z.square().sum(dim=1), 0.0),
    (lambda z: z.sum(dim=1), 0.0),
])  # fmt: skip
def test_the_hessian_penalty_of_known_functions(function, expected):
    """The first is the test of the published code."""
    codes = torch.randn(1, 2, dtype=torch.float64)
    value = hessian_penalty(function, codes, draws=10_000, generator=torch.Generator().manual_seed(0))
    assert value.item() == pytest.approx(expected, abs=0.01)


def test_the_published_test_of_the_hessian_penalty():
    """With the batch, draws and reduction of the published code: 4 for z₀ z₁, and 16 z₀² for z₀² z₁."""
    codes = torch.randn(10, 2, generator=torch.Generator().manual_seed(0))
    for function, expected in ((lambda z: z[:, 0], 4.0), (lambda z: z[:, 0] ** 2, 16 * codes[:, 0].square().mean())):
        value = hessian_penalty(
            lambda z, function=function: function(z) * z[:, 1], codes, draws=100, reduction="mean",
            generator=torch.Generator().manual_seed(0),
        )  # fmt: skip
        assert value.item() == pytest.approx(float(expected), rel=0.05)


def test_the_orthogonal_jacobian_equals_the_definition_and_is_unbiased(smooth):
    codes = torch.rand(1, 6)
    rows = slow_jacobian(smooth, codes)
    expected = sum(4 * (rows[..., a].mT @ rows[..., b]).square().sum(dim=(1, 2)).mean() for a, b in pairs(BLOCKS))
    torch.testing.assert_close(exact_orthogonal_jacobian(smooth, codes, BLOCKS), expected, rtol=1e-5, atol=1e-5)
    many = orthogonal_jacobian(smooth, codes.expand(20_000, -1), BLOCKS, torch.Generator().manual_seed(0))
    torch.testing.assert_close(many, expected, rtol=0.1, atol=0)


def test_jacobian_l1_equals_the_definition_and_is_unbiased(smooth):
    codes = torch.rand(1, 6)
    expected = slow_jacobian(smooth, codes).abs().sum()
    torch.testing.assert_close(jacobian_l1(smooth, codes), expected, rtol=1e-5, atol=1e-5)
    many = jacobian_l1(smooth, codes.expand(5_000, -1), torch.Generator().manual_seed(0), draws=2)
    torch.testing.assert_close(many, expected, rtol=0.05, atol=0)


def test_noise_is_random_and_depends_on_seed_step_and_draw():
    noise = Noise(torch.tensor(3), torch.tensor(7))
    first, second = (normal((4000,), noise, torch.zeros(1)) for _ in range(2))
    again = normal((4000,), Noise(torch.tensor(3), torch.tensor(7)), torch.zeros(1))
    assert torch.equal(first, again)
    others = [first, second, normal((4000,), Noise(torch.tensor(3), torch.tensor(8)), torch.zeros(1))]
    others.append(normal((4000,), Noise(torch.tensor(4), torch.tensor(7)), torch.zeros(1)))
    table = torch.corrcoef(torch.stack(others))
    assert (table - torch.eye(4)).abs().max() < 0.06
    moments = torch.stack([first.mean(), first.std() - 1, (first.pow(4).mean() - 3) / 6])
    assert moments.abs().max() < 0.06
    flat = uniform((4000,), noise, torch.zeros(1))
    assert 0 < flat.min() < flat.max() < 1
    assert abs(flat.var() - 1 / 12) < 0.005
    assert abs(signs((4000,), noise, torch.zeros(1)).mean()) < 0.06


def test_noise_is_the_same_for_a_member_under_vmap():
    seeds, steps = torch.tensor([3, 2**40 + 3]), torch.tensor([7, 9])
    draw = lambda seed, step: normal((5,), Noise(seed, step), torch.zeros(1))  # noqa: E731
    together = torch.func.vmap(draw)(seeds, steps)
    assert torch.equal(together, torch.stack([draw(*pair) for pair in zip(seeds, steps, strict=True)]))
    assert not math.isclose(together[0, 0], together[1, 0])


class Separated(nn.Module):
    """Each output reads one factor: the solution of every penalty on interactions; a matrix may mix the outputs."""

    def __init__(self, mix=0.0):
        super().__init__()
        self.mix = mix

    def forward(self, codes):
        first, second = codes.split([2, 2], dim=-1)
        parts = torch.cat([first.square(), second.sin()], dim=-1)
        return parts + self.mix * parts.roll(1, dims=-1) * parts

    def auxiliary(self, images):
        """An encoder that inverts the unmixed decoder for codes between 0 and 1."""
        first, second = images.split([2, 2], dim=-1)
        return torch.cat([first.clamp(min=0).sqrt(), second.clamp(-1, 1).asin()], dim=-1)


SOLVED = ["contrast", "exact_contrast", "hessian", "orthogonal_jacobian", "consistency"]


@pytest.mark.parametrize("relative", ["true", "false"])
@pytest.mark.parametrize("kind", SOLVED)
def test_a_penalty_is_zero_at_its_solution_and_positive_off_it(kind, relative):
    text = kind if kind == "consistency" else f"{kind}:rows=1:relative={relative}"
    torch.manual_seed(0)
    penalty, codes = REMEDIES.parse(text), torch.rand(32, 4)
    at, off = (penalty.loss(Separated(mix), codes, (2, 2), None).item() for mix in (0.0, 1.0))
    assert at == pytest.approx(0, abs=1e-4)
    assert off > 0.1


@pytest.mark.parametrize("kind", [*SOLVED[:4], "jacobian_l1"])
def test_a_relative_penalty_does_not_reward_small_outputs(smooth, kind):
    penalty, codes = REMEDIES.parse(f"{kind}:rows=1"), torch.rand(8, 6)
    values = [
        penalty.loss(lambda z, scale=scale: scale * smooth(z), codes, BLOCKS, torch.Generator().manual_seed(0)).item()
        for scale in (30, 90)
    ]
    assert values[0] == pytest.approx(values[1], rel=0.05)


def test_recombined_codes_are_blocks_of_different_examples():
    codes = torch.arange(8.0)[:, None].expand(8, 3)
    first, second = recombined(codes, (1, 2), torch.Generator().manual_seed(0)).split([1, 2], dim=-1)
    assert sorted(first.flatten().tolist()) == sorted(second[:, 0].tolist()) == [*range(8)]
    assert torch.equal(second[:, 0], second[:, 1])
    assert not torch.equal(first[:, 0], second[:, 0])


def test_recombined_codes_need_to_know_blocks_and_held_out_codes():
    assert REMEDIES.parse("jacobian_l1").privileges == ()
    assert REMEDIES.parse("jacobian_l1:where=all").privileges == ("factor blocks", "held-out codes")


def test_mixup_is_zero_for_linear_maps_only():
    torch.manual_seed(0)
    mixup, codes = REMEDIES.parse("mixup"), torch.rand(32, 4)
    assert mixup.loss(nn.Linear(4, 5), codes, (2, 2), None).item() == pytest.approx(0, abs=1e-10)
    assert mixup.loss(Separated(), codes, (2, 2), None).item() > 1e-3


def test_the_cross_term_equals_the_definition(smooth):
    codes = torch.rand(4, 6)
    directions = value_directions(codes, BLOCKS)
    expected = []
    for rows, *along in zip(slow_jacobian(smooth, codes), *directions, strict=True):
        slopes = [rows @ direction for direction in along]
        cosines = [slopes[a] @ slopes[b] / slopes[a].norm() / slopes[b].norm() for a in range(3) for b in range(a)]
        expected.append(torch.stack(cosines).square().mean())
    torch.testing.assert_close(
        cross_term(smooth, codes, directions), torch.stack(expected).mean(), rtol=1e-3, atol=1e-4
    )


def test_the_cross_term_does_not_depend_on_scale(smooth):
    codes = torch.rand(4, 6)
    directions = value_directions(codes, BLOCKS)
    small = cross_term(lambda rows: 0.1 * smooth(rows), codes, directions)
    torch.testing.assert_close(small, cross_term(smooth, codes, directions), rtol=1e-2, atol=1e-4)


def test_directions_lead_to_the_nearest_other_value():
    codes = torch.tensor([[1.0, 0.0], [1.0, 5.0], [3.0, 6.0], [0.0, 2.0]])  # the last has no first factor
    x, y = value_directions(codes, (1, 1))
    assert x.tolist() == [[1, 0], [1, 0], [-1, 0], [0, 0]]
    assert y.tolist() == [[0, 0], [0, 1], [0, -1], [0, 1]]


@pytest.mark.parametrize(("stage", "number"), [("first", 0), ("middle", 1), ("output", 3)])
def test_the_cross_term_is_that_of_its_stage(stage, number):
    torch.manual_seed(0)
    parts = {f"layer{k}": nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for k in range(3)}
    module, codes = StagedDecoder({**parts, "output": nn.Linear(4, 2)}), torch.rand(8, 4)
    penalty = REMEDIES.parse(f"cross_term:stage={stage}:rows=1")
    until = nn.Sequential(*list(module.stages.values())[: number + 1])
    expected = cross_term(until, codes, value_directions(codes, (2, 2)))
    assert torch.equal(penalty.loss(module, codes, (2, 2), None), expected)
    assert torch.equal(penalty.replace(reward=True).loss(module, codes, (2, 2), None), -expected)
