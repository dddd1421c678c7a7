"""The checks that all public functions share."""

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pytest
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from recombine.checks import checked, fits, given_path, in_words, items, number, one_of, users_function, whole_number
from recombine.errors import InvalidValue, quoted, reason_of


@pytest.mark.parametrize(
    ("value", "hint", "right"),
    [
        (3, int, True), (np.int64(3), int, True), (True, int, False), (3.0, int, False), ("3", int, False),
        (3, float, True), (np.float32(3), float, True), (math.nan, float, False), (10**400, float, False),
        (Fraction(1, 3), float, False), (True, float, False), (None, int | None, True), ("a", int | None, False),
        ("a", Literal["a", "b"], True), ("c", Literal["a", "b"], False), (np.array(["a", "b"]), Literal["a"], False),
        ((1, 2), tuple[int, ...], True), ([1, 2], tuple[int, ...], True), ((1, 2.5), tuple[int, ...], False),
        ("ab", Sequence[str], False), ({"a": 1}, Mapping[str, int], True), ({1: 1}, dict[str, int], False),
        (len, Callable[[Any], int], True), (3, Callable[[Any], int], False), (object(), Any, True),
        (torch.ones(3), Float[Tensor, " point"], True), (torch.ones(3, 3), Float[Tensor, " point"], False),
        (torch.ones(3).int(), Float[Tensor, " point"], False), (np.ones(3), Float[Tensor, " point"], False),
        (torch.ones(3).to_sparse(), Float[Tensor, " point"], False),
    ],
)  # fmt: skip
def test_values_are_held_against_annotations(value, hint, right):
    assert fits(value, hint) is right
    assert "\n" not in in_words(hint)


@checked
def weighed(points: Float[Tensor, "point factor"], kept: Bool[Tensor, " point"], how: Literal["mean", "sum"] = "mean"):
    """A function to be called wrongly."""
    return points[kept]


def test_a_right_call_goes_through():
    assert len(weighed(torch.ones(3, 2), torch.tensor([True, False, True]), how="sum")) == 2
    assert weighed.__doc__ == "A function to be called wrongly."


def test_axes_of_one_name_have_one_length():
    with pytest.raises(InvalidValue, match=r"kept: Tensor torch.bool \(4,\) is not allowed; .*'point', as long as in"):
        weighed(torch.ones(3, 2), torch.ones(4, dtype=torch.bool))


def test_choices_are_listed():
    with pytest.raises(InvalidValue, match="how: 'median' is not allowed; allowed: mean, sum"):
        weighed(torch.ones(3, 2), torch.ones(3, dtype=torch.bool), "median")


def test_pythons_own_errors_of_a_call_stay():
    with pytest.raises(TypeError, match="unexpected keyword argument 'hwo'"):
        weighed(torch.ones(3, 2), torch.ones(3, dtype=torch.bool), hwo="sum")


def test_numbers_and_choices():
    assert whole_number("n", np.int32(3)) == 3
    assert number("n", 3, at_least=0) == 3.0
    assert number("n", math.inf, or_infinity=True) == math.inf
    assert one_of("n", "a", ["a", "b"]) == "a"
    for check, allowed in (
        (lambda: whole_number("n", 0), "a whole number, at least 1"),
        (lambda: whole_number("n", 9, at_most=8), "a whole number, at least 1 and at most 8"),
        (lambda: number("n", 0, above=0), "a finite number, greater than 0"),
        (lambda: number("n", 3, at_least=0, at_most=2), "a finite number, at least 0, at most 2"),
        (lambda: number("n", math.inf), "a finite number"),
        (lambda: one_of("n", "c", ["a", "b"]), "a, b"),
        (lambda: one_of("n", 1, [True]), "True"),
        (lambda: given_path("n", b"bytes"), "a path"),
        (lambda: given_path("n", "with\0nothing"), "a path"),
    ):
        with pytest.raises(InvalidValue) as caught:
            check()
        assert caught.value.allowed == allowed


def test_items_of_any_iterable_once():
    assert items("n", (i for i in (1, 2)), int, example="whole numbers") == [1, 2]
    assert items("n", 3, int, example="whole numbers") == [3]
    for value, field in ((3.5, "n"), ("12", "n"), ({1: 2}, "n"), ([1, "2"], r"n\[1\]"), (np.array(3), "n")):
        with pytest.raises(InvalidValue, match=f"^{field}: .*allowed: whole numbers"):
            items("n", value, int, example="whole numbers")
    with pytest.raises(InvalidValue, match="n: 3"):
        items("n", 3, int, example="whole numbers", lone=False)


def test_what_a_users_function_raises_is_the_cause():
    with pytest.raises(InvalidValue, match=r"reader: .*\(KeyError: 'a'\)") as caught, users_function("reader", len):
        {}["a"]
    assert isinstance(caught.value.__cause__, KeyError)


class Speechless:
    def __repr__(self):
        raise RuntimeError("no words")


def test_values_are_shown_in_one_short_line():
    assert quoted(torch.ones(3, 4)) == "Tensor torch.float32 (3, 4)"
    assert quoted(np.zeros((2, 2), dtype=bool)) == "ndarray bool (2, 2)"
    assert quoted(10**5000) == "int object"
    assert quoted(Speechless()) == "Speechless object"
    assert quoted("a\nb") == r"'a\nb'"
    assert len(quoted("a" * 1000)) == 80
    assert reason_of(ValueError("two\nlines")) == "ValueError: two lines"
    assert reason_of(ValueError()) == "ValueError"
    assert len(reason_of(ValueError("a" * 1000))) == 160
