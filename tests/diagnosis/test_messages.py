"""Messages name what is to blame, as it was given, and say what would be right."""

import sys
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import recombine
from recombine.diagnosis import parse_grid
from recombine.errors import InvalidValue

GRID = "x=0:3,y=0:3"


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("x=0:1.5", "bounds a whole number apart, or NAME=LOW:HIGH:COUNT"),
        ("x=4:0", "HIGH not below LOW"),
        ("x=4:0:5", "HIGH not below LOW"),
        ("x=0:1e300", "COUNT: a whole number, at least 1 and at most 10000000"),
        ("x=0:1:0", "COUNT: a whole number, at least 1 and at most 10000000"),
        ("x=0:1:1", "HIGH: 0.0, the only value"),
        ("x=0:inf", "NAME=LOW:HIGH or NAME=LOW:HIGH:COUNT, separated by commas"),
    ],
)
def test_a_part_of_a_grid_is_named_as_typed(text, allowed):
    with pytest.raises(InvalidValue) as caught:
        parse_grid(f"y=0:3,{text}")
    assert str(caught.value) == f"grid: {text!r} is not allowed; allowed: {allowed}"


class Calls(nn.Linear):
    """A linear map, then something."""

    def __init__(self, then):
        super().__init__(2, 3)
        self.then = then

    def forward(self, values):
        return self.then(super().forward(values))


def leave_late(outputs):
    if len(outputs) > 5:
        raise SystemExit(7)
    return outputs


@pytest.mark.parametrize(
    ("then", "fields", "expected"),
    [
        (lambda outputs: sys.exit(7), {}, r"module: 'Calls' .*\(2,\) numbers per row \(SystemExit: 7\)"),
        (leave_late, {}, r"module: 'Calls' .*runs at every grid point \(SystemExit: 7\)"),
        (lambda outputs: outputs[:, :0], {}, "module: 'output' .*a stage with at least one number per grid point"),
        (torch.tanh, {"encode": lambda values: sys.exit(7)}, r"encode: .*\(SystemExit: 7\)"),
        (torch.tanh, {"encode": lambda values: values * np.nan}, "encode: .*a code with finite numbers"),
        (torch.tanh, {"holdout": np.zeros((4, 4))}, r"holdout: ndarray float64 \(4, 4\) .*a boolean mask"),
        (torch.tanh, {"holdout": torch.tensor(True)}, r"holdout: tensor\(True\) .*a boolean mask"),
        (torch.tanh, {"targets": np.zeros((16, 2))}, r"targets: \(16, 2\) .*\(16, 3\) numbers, a row per grid point"),
    ],
)
def test_the_culprit_is_named(then, fields, expected):
    with pytest.raises(InvalidValue, match=expected) as caught:
        recombine.diagnose(Calls(then), GRID, **fields)
    assert "\n" not in str(caught.value)


def test_an_interrupt_passes():
    def interrupt(outputs):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recombine.diagnose(Calls(interrupt), GRID)


def test_a_recurrent_module_brings_no_warning():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = nn.GRU(2, 3, batch_first=True)

        def forward(self, values):
            return self.cells(values[:, None])[0][:, 0]

    before = torch.backends.mkldnn.enabled
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="TF32")
        assert recombine.diagnose(Recurrent(), GRID).attrs["metric"] == "exact"
    assert torch.backends.mkldnn.enabled == before


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "--grid: none was given; allowed: factors and values, as x=0:27,y=0:27"),
        (["--grid", GRID, "--targets", __file__], "it holds Python objects, or something else than an array"),
    ],
)
def test_the_command_says_what_is_needed(words, expected, capsys):
    from recombine.cli import main

    with pytest.raises(SystemExit) as caught:
        main(["diagnose", "torch.nn:Identity", *words])
    err = capsys.readouterr().err
    assert caught.value.code == 2
    assert expected in err
    assert "allow_pickle" not in err
    assert err.count("\n") == 1
