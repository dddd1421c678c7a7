"""Known answers; the contracts hold the rest."""

import math
from typing import Literal

import pytest
import torch

from recombine.encodings import ENCODINGS, Bump, Circular, Encoding, Mixed, OneHot, Polar, Positional, Ramp, Rate
from recombine.errors import InvalidValue
from recombine.factors import Factor, FactorGrid

X = Factor("x", 0, 4, 5)
AT = torch.tensor([0.0, 2.0, 4.0], dtype=torch.float64)


def test_bump_is_a_gaussian_over_neurons():
    code = Bump(variance=3.0).code(AT, X)
    assert code[1].tolist() == [math.exp(-((k - 2) ** 2) / 6) for k in range(5)]


def test_ramp_is_a_thermometer():
    assert Ramp().code(AT, X)[1].tolist() == [1, 1, 0.5, 0, 0]
    assert Ramp().code(torch.tensor(2.25, dtype=torch.float64), X).tolist() == [1, 1, 0.75, 0, 0]


def test_positional_is_sines_then_cosines_of_geometric_frequencies():
    code = Positional(pairs=2, base=100.0).code(torch.tensor(3.0, dtype=torch.float64), X)
    expected = [math.sin(3), math.sin(0.3), math.cos(3), math.cos(0.3)]
    assert torch.allclose(code, torch.tensor(expected, dtype=torch.float64))


ANGLE = Factor("hue", 0, 300, 6, "angle")
FORMS = FactorGrid((X, Factor("shape", 0, 2, 3, "category"), ANGLE))


def test_circular_is_a_von_mises_bump_on_the_circle_and_a_bump_on_a_line():
    code = Circular(variance=2.0).code(torch.tensor([0.0, 300.0, 345.0], dtype=torch.float64), ANGLE)
    step = math.pi / 3
    expected = [math.exp((math.cos(k * step) - 1) / (2 * step**2)) for k in range(6)]
    assert torch.allclose(code[0], torch.tensor(expected, dtype=torch.float64))
    assert torch.allclose(code[1].roll(1), code[0]), "neighbours across 0° as anywhere else"
    assert torch.allclose(code[2][0], Circular(variance=2.0).code(torch.tensor(15.0).double(), ANGLE)[0])
    assert torch.equal(Circular(variance=3.0).code(AT, X), Bump(variance=3.0).code(AT, X))


def test_polar_goes_by_the_form():
    at = torch.tensor([0.0, 60.0, 300.0], dtype=torch.float64)
    assert torch.allclose(Polar().code(at, ANGLE)[1], torch.tensor([0.5, math.sqrt(3) / 2], dtype=torch.float64))
    assert Polar().size(ANGLE) == 2
    assert Polar().size(Factor("angle", 0, 300, 6)) == 6


def test_mixed_codes_each_factor_in_its_own_way():
    mixed = ENCODINGS.parse("mixed:x=(bump:variance=3):hue=polar")
    assert mixed.parts == {"x": Bump(variance=3.0), "hue": Polar()}
    assert [mixed.size(factor) for factor in FORMS.factors] == [5, 3, 2]
    assert torch.equal(mixed.code(AT, X), Bump(variance=3.0).code(AT, X))
    assert str(mixed) == "mixed:x=(bump:variance=3.0):hue=polar"
    assert str(mixed.resolved(FORMS)) == "mixed:x=(bump:variance=3.0):shape=onehot:hue=polar"
    assert ENCODINGS.parse(str(mixed)) == mixed == ENCODINGS.parse(mixed.model_dump(mode="json"))
    assert mixed.replace(x="rate").parts["x"] == Rate()


def test_mixed_follows_the_forms_where_nothing_is_given():
    assert Mixed().resolved(FORMS) == Mixed(x=Bump(), shape=OneHot(), hue=Circular())
    assert not Mixed().resolved(FORMS).differentiable
    assert Mixed(x="rate", shape="ramp").resolved(FORMS).differentiable
    assert not Mixed(x="rate").population


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("mixed:x", "encoding.mixed"),
        ("mixed:x=bump:x=rate", "encoding.mixed.x"),
        ("mixed:x=braille", "encoding.x"),
        ("mixed:x=(bump:variance=0)", "encoding.x.variance"),
        ("mixed:x=mixed", "encoding.x"),
        ("mixed:size=bump", "encoding.size"),
    ],
)
def test_mistakes_in_a_mixture_name_the_factor(text, field):
    with pytest.raises(InvalidValue) as caught:
        ENCODINGS.parse(text).resolved(FORMS)
    assert caught.value.field == field


def test_a_class_that_lacks_a_method_is_refused():
    class Lacking(Encoding):
        kind: Literal["lacking"] = "lacking"

        def size(self, factor):
            return 2

    with pytest.raises(InvalidValue, match="a class that defines code"):
        ENCODINGS.register(Lacking)
