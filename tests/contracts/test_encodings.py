"""What every encoding promises."""

import pytest
import torch

from recombine.encodings import ENCODINGS
from recombine.errors import InvalidValue
from recombine.factors import Factor
from recombine.tasks import BumpTask

FACTORS = [
    Factor("x", 0, 27, 28),
    Factor("y", 0, 4, 5),
    Factor("brightness", 0.25, 1, 4),
    Factor.of("width", [0.5, 0.7, 1.0, 2.0]),
    Factor("shape", 0, 2, 3, "category"),
    Factor("angle", 0, 340, 18, "angle"),
    Factor("radians", 0, 3, 5, "angle", period=3.5),
    Factor.of("hue", [0.0, 20.0, 90.0, 200.0], "angle"),
    Factor("only", 2, 2, 1),
]


@pytest.mark.parametrize("factor", FACTORS, ids=lambda factor: factor.name)
def test_code_has_the_size_it_says_and_tells_values_apart(encoding, factor):
    code = encoding.code(factor.values, factor)
    assert code.shape == (factor.count, encoding.size(factor))
    assert torch.isfinite(code).all()
    distance = torch.cdist(code, code) + torch.eye(factor.count)
    assert distance.min() > 1e-3


@pytest.mark.parametrize("factor", FACTORS[1:8:3], ids=lambda factor: factor.name)
def test_code_keeps_leading_axes(encoding, factor):
    values = factor.values[torch.tensor([[0, 1, 2], [2, 1, 0]])]
    assert torch.equal(encoding.code(values, factor)[1, 0], encoding.code(values[1, 0], factor))


def test_each_factor_has_its_own_neurons(encoding):
    task = BumpTask(size=8, encoding=encoding)
    here, moved = task.codes(torch.tensor([[2.0, 3.0], [2.0, 6.0]], dtype=torch.float64))
    size = task.code_sizes[0]
    assert torch.equal(here[:size], moved[:size])
    assert not torch.equal(here[size:], moved[size:])


@pytest.mark.parametrize("factor", FACTORS, ids=lambda factor: factor.name)
def test_absent_is_zero_or_refused(encoding, factor):
    values = torch.tensor([factor.high, torch.nan], dtype=torch.float64)
    if encoding.population:
        code = encoding.present(values, factor)
        assert torch.equal(code[1], torch.zeros_like(code[1]))
        assert torch.equal(code[0], encoding.code(values[0], factor))
        assert code[0].abs().sum() > 0
    else:
        with pytest.raises(InvalidValue, match="population code"):
            encoding.present(values, factor)


@pytest.mark.parametrize("factor", [f for f in FACTORS[:-1] if f.form != "category"], ids=lambda factor: factor.name)
def test_real_values_are_coded_smoothly_or_refused(encoding, factor):
    values = factor.low + (factor.high - factor.low) * torch.tensor([0.12, 0.43, 0.77], dtype=torch.float64)
    if not encoding.of(factor).differentiable:
        with pytest.raises(InvalidValue, match="real-valued"):
            encoding.code(values, factor)
        return
    exact = torch.func.jvp(lambda v: encoding.code(v, factor), (values,), (torch.ones_like(values),))[1]
    step = 1e-6
    slope = (encoding.code(values + step, factor) - encoding.code(values - step, factor)) / (2 * step)
    assert torch.allclose(exact, slope, atol=1e-6)
    assert exact.abs().sum() > 0


@pytest.mark.parametrize("factor", [f for f in FACTORS if f.form == "angle"], ids=lambda factor: factor.name)
def test_a_code_that_knows_the_circle_is_the_same_after_a_period(factor):
    for encoding in ("circular", "polar", "mixed"):
        code = ENCODINGS.parse(encoding).code
        assert torch.allclose(code(factor.values, factor), code(factor.values + factor.period, factor), atol=1e-12)


@pytest.mark.parametrize("value", [-1.0, 5.0])
def test_a_one_hot_code_has_no_place_beyond_the_factors_values(value):
    """Zeros would say that the factor is absent."""
    with pytest.raises(InvalidValue, match="0 to 4"):
        ENCODINGS.parse("onehot").code(torch.tensor([0.0, value]).double(), Factor("x", 0, 4, 5))
