"""The low-rank embedding against the formulas of §4.1, written out."""

import math

import pytest
import torch

from recombine.decoders import LowRankEmbedding


def embedding(vectors="unit", rank=3):
    torch.manual_seed(0)
    return LowRankEmbedding((4, 6), (5, 7), rank, vectors)


def test_images_are_sums_of_unit_outer_products():
    module = embedding()
    for factor, images in enumerate(module.images()):
        for value in range(len(images)):
            expected = torch.zeros(5, 7)
            for n in range(3):
                v, u = module.rows[factor][value, n], module.columns[factor][value, n]
                expected += module.strengths[factor][value, n] * torch.outer(v / v.norm(), u / u.norm())
            assert torch.allclose(images[value], expected, atol=1e-6)


def test_onehot_selects_and_absent_is_empty():
    module = embedding()
    code = torch.zeros(1, 10)
    code[0, 2] = 1
    channels = module(code)
    assert torch.allclose(channels[0, 0], module.images()[0][2])
    assert torch.equal(channels[0, 1], torch.zeros(5, 7))


def test_entropy_known_answers():
    module = embedding(rank=4)
    for strength in module.strengths:
        strength.data.fill_(0.3)
    assert module.entropy().item() == pytest.approx(10 * math.log(4))
    for strength in module.strengths:
        strength.data[:, 1:] = 0
    assert module.entropy().item() == 0


def test_entropy_can_drive_a_strength_to_zero():
    module = embedding()
    module.strengths[0].data[:, 1:] = 0
    module.entropy().backward()
    assert all(torch.isfinite(strength.grad).all() for strength in module.strengths)


@pytest.mark.parametrize("vectors", ["unit", "raw"])
def test_variance_is_summed_over_everything(vectors):
    module = embedding(vectors)
    total = 0.0
    for part in (*module.rows, *module.columns):
        for value in part:
            for vector in value:
                seen = vector / vector.norm() if vectors == "unit" else vector
                total += ((seen - seen.mean()) ** 2).mean().item()
    assert module.variance().item() == pytest.approx(total, rel=1e-5)


def test_constant_vectors_have_no_variance():
    module = embedding()
    for part in (*module.rows, *module.columns):
        part.data.fill_(2.0)
    assert module.variance().item() == pytest.approx(0, abs=1e-9)
