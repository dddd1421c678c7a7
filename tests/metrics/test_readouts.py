"""Probes, kernels, superposition, tuning and ranks: known outputs and loops written the obvious way."""

import itertools

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression, Ridge

from recombine.errors import InvalidValue
from recombine.metrics import (
    LinearProbe,
    averaged_prediction,
    effective_rank,
    explained_variance,
    gram_matrix,
    kernel_agreement,
    matrix_effective_rank,
    neuron_tuning,
    schmidt_spectrum,
    superposition_scores,
    theoretical_kernel,
)
from recombine.metrics.probes import evaluate_held_out, evaluate_in_sample
from recombine.metrics.ranks import evaluate_schmidt_rank
from recombine.tasks import BumpTask
from tests.metrics.comparison import stage_over
from tests.small import noise

TASK = BumpTask(size=14)
POINTS, HELD_OUT = TASK.grid.points, TASK.held_out


# -- probes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "ridge"), [(5, 0.0), (5, 1e-2), (40, 1e-2), (300, 1e-3)])
def test_probe_is_linear_regression(size, ridge):
    features, values = noise(60, size), noise(60, 2, seed=1)
    fitted = LinearProbe(ridge).fit(features, values)
    scale = (features - features.mean(dim=0)).square().sum(dim=1).mean().item()
    slow = (Ridge(alpha=ridge * scale) if ridge else LinearRegression()).fit(features.numpy(), values.numpy())
    other = noise(20, size, seed=2)
    assert np.allclose(fitted.predict(other).numpy(), slow.predict(other.numpy()), atol=1e-8)


def test_the_papers_probe_reads_anything_off_noise_and_the_held_out_probe_does_not():
    of_noise, linear = (
        stage_over(own, TASK.grid.shape, HELD_OUT) for own in (noise(len(POINTS), 4000), POINTS @ noise(2, 50))
    )
    assert (evaluate_in_sample(of_noise)["probe_in_sample"] > 0.999).all()
    assert (evaluate_held_out(of_noise)["probe_held_out"] < 0.1).all()
    assert (evaluate_held_out(linear)["probe_held_out"] > 0.99).all()


def test_a_factor_that_does_not_vary_among_the_scored_points_has_no_score():
    values = torch.tensor([[0.1, 0.0], [0.3, 1.0], [0.3, 2.0], [0.3, 3.0]])
    scores = LinearProbe(0.0).fit(values[:1], values[:1]).score(values[1:], values[1:])
    assert torch.isnan(scores[0])
    assert torch.isfinite(scores[1])


# -- kernels -------------------------------------------------------------------------------------------------------


def test_gram_matrices_against_loops():
    outputs = torch.rand(2, 4, 9, generator=torch.Generator().manual_seed(0))
    for member, a, b in itertools.product(range(2), range(4), range(4)):
        first, second = outputs[member, a].double(), outputs[member, b].double()
        cosine = gram_matrix(outputs, "cosine")[member, a, b].item()
        assert cosine == pytest.approx((first @ second / first.norm() / second.norm()).item())
        assert gram_matrix(outputs, "l2")[member, a, b].item() == pytest.approx(
            (first - second).norm().item(), abs=1e-6
        )
        bright = sum(bool(p > 0.7 and q > 0.7) for p, q in zip(first, second, strict=True)) / 9
        dark = sum(bool(p < 0.3 and q < 0.3) for p, q in zip(first, second, strict=True)) / 9
        assert gram_matrix(outputs, "overlap")[member, a, b].item() == pytest.approx(bright)
        assert gram_matrix(outputs, "overlap", dark=True)[member, a, b].item() == pytest.approx(dark)


def test_binary_kernel_against_a_loop():
    rows, columns = POINTS[HELD_OUT][:5], POINTS[~HELD_OUT]
    found = theoretical_kernel("binary", rows, columns)
    for i, (x, y) in enumerate(rows.tolist()):
        same = torch.tensor(
            [float(a == x) + float(b == y) - float(a == x) * float(b == y) for a, b in columns.tolist()]
        )
        assert torch.allclose(found[i], (same / same.sum()).double())


def superposer():
    """Draws at a held-out place all kept bumps that share x or share y; elsewhere the bump."""
    images = TASK.render(POINTS).flatten(1)
    kept = POINTS[~HELD_OUT]
    shares = (POINTS[:, None, :] == kept[None]).any(dim=-1).double()
    drawn = images.clone()
    drawn[HELD_OUT] = shares[HELD_OUT] @ images[~HELD_OUT]
    return drawn


def composer():
    """Draws the bump everywhere."""
    return TASK.render(POINTS).flatten(1)


def binary_wins(found):
    """Whether the binary kernel agrees better than every rival of another shape, for each member."""
    rivals = [value for name, value in found.agreement.items() if name not in ("binary", "gaussian_sum")]
    return (found.agreement["binary"] > torch.stack(rivals).amax(dim=0)).tolist()


def test_binary_kernel_wins_for_a_superposer_and_not_for_a_composer():
    grams = torch.stack([gram_matrix(superposer()), gram_matrix(composer())])
    found = kernel_agreement(grams, POINTS, HELD_OUT, permutations=199)
    assert binary_wins(found) == [True, False]
    assert found.p_value[0].item() == pytest.approx(1 / 200)
    assert found.agreement["binary"][0] > 0.55


def test_kernel_agreement_of_noise_is_null():
    gram = gram_matrix(noise(len(POINTS), 20).abs())
    found = kernel_agreement(gram, POINTS, HELD_OUT, permutations=99)
    assert abs(found.agreement["binary"].item()) < 0.05
    assert found.p_value > 0.02
    with pytest.raises(InvalidValue, match="held-out and kept points"):
        kernel_agreement(gram, POINTS, torch.zeros_like(HELD_OUT))


# -- superposition -------------------------------------------------------------------------------------------------


def test_memories_explain_a_superposer_and_not_a_composer():
    truth = composer()
    guilty = superposition_scores(superposer(), POINTS, HELD_OUT, truth=truth)
    assert guilty["memorised"].item() == pytest.approx(1)
    assert guilty["truth"] < 0.1
    assert guilty["memorised_null"] < 0.5
    honest = superposition_scores(truth, POINTS, HELD_OUT, truth=truth)
    assert honest["memorised"].item() == pytest.approx(0, abs=0.05)
    assert honest["truth"].item() == pytest.approx(1)


def test_noise_is_explained_as_the_null_is():
    outputs = noise(len(POINTS), 196)
    found = superposition_scores(outputs, POINTS, HELD_OUT)
    assert found["memorised"].item() == pytest.approx(found["memorised_null"].item(), abs=0.02)
    assert found["memorised"].item() == pytest.approx(0, abs=0.05)


def test_averaged_form_is_exact_for_an_additive_network():
    """S(x, y) = A code_x + B code_y: the averaged prediction is S(x, y) plus a constant image."""
    codes, sizes = TASK.codes(POINTS), TASK.code_sizes
    matrix = noise(28, 50)
    prediction = averaged_prediction(lambda c: c @ matrix, codes, sizes, codes[~HELD_OUT])
    constant = prediction - codes @ matrix
    assert torch.allclose(constant, constant[:1].expand_as(constant))
    mean = codes[~HELD_OUT].mean(dim=0)
    own = (
        torch.cat([codes[:1, :14], mean[None, 14:]], dim=1) @ matrix
        + torch.cat([mean[None, :14], codes[:1, 14:]], 1) @ matrix
    )
    assert torch.allclose(prediction[:1], own)


def test_explained_variance_known_answers():
    signal = noise(2, 10, 7)
    assert explained_variance(signal, 3 * signal).tolist() == pytest.approx([1, 1])
    assert (explained_variance(signal, -signal) <= 0.01).all()
    assert (explained_variance(signal, torch.zeros_like(signal)) <= 0).all()


# -- tuning and ranks ----------------------------------------------------------------------------------------------


def test_tuning_indices_known_answers():
    x, y = POINTS[:, 0], POINTS[:, 1]
    stripe, both = torch.sin(x), torch.sin(x) + torch.cos(2 * y)
    spot = torch.exp(-((x - 7) ** 2 + (y - 7) ** 2) / 0.5)
    silent = torch.full_like(x, 3.0)
    found = neuron_tuning(torch.stack([stripe, both, spot, silent], dim=1), TASK.grid.shape)
    assert found.stripe_index[0].item() == pytest.approx(1)
    assert found.localisation_index[:2].tolist() == pytest.approx([0, 0], abs=1e-9)
    assert found.localisation_index[2] > 0.75
    assert torch.isnan(found.stripe_index[3])


def test_tuning_curves_against_loops():
    activations = noise(2, len(POINTS), 3)
    found = neuron_tuning(activations, TASK.grid.shape)
    for member, value, neuron in itertools.product(range(2), range(14), range(3)):
        for factor in range(2):
            rows = POINTS[:, factor] == value
            assert found.curves[factor][member, value, neuron].item() == pytest.approx(
                activations[member, rows, neuron].mean().item()
            )


def test_effective_rank_known_answers():
    assert effective_rank(torch.tensor([[1.0, 0, 0, 0], [0.25] * 4])).tolist() == pytest.approx([1, 4])
    assert matrix_effective_rank(torch.outer(noise(5), noise(6, seed=1))).item() == pytest.approx(1)
    assert matrix_effective_rank(torch.eye(6)).item() == pytest.approx(6)


def test_schmidt_rank_known_answers():
    x, y = (grid.flatten() for grid in torch.meshgrid(torch.arange(4), torch.arange(5), indexing="ij"))
    one_x, one_y = torch.eye(4, dtype=torch.float64)[x], torch.eye(5, dtype=torch.float64)[y]
    products = torch.einsum("pa,pb->pab", one_x @ noise(4, 3), one_y @ noise(5, 3, seed=1)).flatten(1)
    assert evaluate_schmidt_rank(stage_over(products, (4, 5)))["schmidt_rank"].item() == pytest.approx(1)
    beside = torch.cat([one_x, one_y], dim=1)
    kernel = (x[:, None] == x).double() / 2 + (y[:, None] == y).double() / 2
    rearranged = torch.stack([
        kernel[a * 5 : a * 5 + 5, b * 5 : b * 5 + 5].flatten() for a in range(4) for b in range(4)
    ])  # fmt: skip
    shares = torch.linalg.svdvals(rearranged).square()
    shares = shares[shares > 1e-12] / shares.sum()
    expected = torch.exp(-(shares * shares.log()).sum()).item()  # of the two products in the sum, not of equal weight
    assert 1.1 < expected < 2
    assert evaluate_schmidt_rank(stage_over(beside, (4, 5)))["schmidt_rank"].item() == pytest.approx(expected)


def test_schmidt_spectrum_known_answers():
    first, second = noise(4, 4), noise(5, 5, seed=1)
    product = torch.kron(first @ first.T, second @ second.T)
    spectrum = schmidt_spectrum(product, (4, 5))
    assert spectrum[0].item() == pytest.approx(1)
    assert spectrum[1:].abs().max() < 1e-6
    other = torch.kron(torch.diag(noise(4, seed=2)), torch.diag(noise(5, seed=3)))
    two = schmidt_spectrum(product / product.norm() + other / other.norm(), (4, 5))
    assert (two > 1e-6).sum() == 2
    assert two.square().sum().item() == pytest.approx(1)
