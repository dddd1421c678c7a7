"""Outputs, modules and surroundings of every kind work, or are refused in one line."""

import warnings
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import recombine
from recombine.errors import InvalidValue

diagnose = partial(recombine.diagnose, metrics=["metric", "volume"])
"""The fewest numbers in which a difference shows."""
GRID = "x=0:3,y=0:3"
Pair = namedtuple("Pair", "loss logits")


@dataclass
class Fields:
    loss: torch.Tensor
    logits: torch.Tensor


class Returns(nn.Module):
    """A scalar loss before the outputs, in a wrapping."""

    def __init__(self, wrap):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.wrap = nn.Linear(8, 3), wrap

    def forward(self, codes):
        outputs = self.layer(codes).tanh()
        return self.wrap(outputs.mean(), outputs)


class ModelOutput(OrderedDict):
    """As those of Hugging Face's transformers, a mapping whose entries are attributes too."""

    def __init__(self, loss, logits):
        super().__init__(loss=loss, logits=logits)
        self.loss, self.logits = loss, logits


def test_outputs_of_every_kind():
    plain = diagnose(Returns(lambda loss, logits: logits), GRID, encode="bump")
    wraps = {
        "dataclass": Fields,
        "namedtuple": Pair,
        "model output": ModelOutput,
        "namespace": lambda loss, logits: SimpleNamespace(loss=loss, logits=logits),
        "distribution": lambda loss, logits: torch.distributions.Normal(logits, torch.ones_like(logits)),
        "nested": lambda loss, logits: {"a": [{"b": (loss, None, "text", torch.tensor(3))}], "c": Fields(loss, logits)},
    }
    for name, wrap in wraps.items():
        result = diagnose(Returns(wrap), GRID, encode="bump")
        assert np.array_equal(result["metric"], plain["metric"]), name


def layers(normalise=nn.BatchNorm1d):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 6), nn.GELU(), normalise(6), nn.Linear(6, 3))


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("how", ["script", "trace", "inside"])
def test_scripted_and_traced_modules(how):
    plain = layers().eval()
    module = {
        "script": lambda: torch.jit.script(plain),
        "trace": lambda: torch.jit.trace(plain, torch.randn(2, 8)),
        "inside": lambda: nn.Sequential(torch.jit.script(plain), nn.Identity()),
    }[how]()
    result = diagnose(module.train(), GRID, encode="bump")
    expected = diagnose(plain, GRID, encode="bump")
    assert result.attrs["metric"] == "exact"
    assert np.allclose(result["metric"].sel(stage="output"), expected["metric"].sel(stage="output"), atol=1e-5)
    assert len(result.notes) == 1
    assert module.training


def test_compiled_modules():
    expected = diagnose(layers(), GRID, encode="bump")
    inside = nn.Sequential(torch.compile(layers(), backend="eager"))
    in_place = layers()
    in_place.compile(backend="eager")
    for module in (torch.compile(layers(), backend="eager"), in_place, inside):
        result = diagnose(module, GRID, encode="bump")
        assert result.attrs["metric"] == "exact"
        assert np.array_equal(result["metric"].values, expected["metric"].values)
    assert list(expected["stage"].values) == ["input", "0", "1", "2", "output"]


def test_traced_graphs_and_exported_programs():
    plain = layers().eval()
    expected = diagnose(plain, GRID, encode="bump")
    rows = torch.export.Dim("rows", min=1)
    exported = torch.export.export(plain, (torch.randn(2, 8),), dynamic_shapes=({0: rows},)).module()
    for module in (torch.fx.symbolic_trace(plain), exported):
        result = diagnose(module, GRID, encode="bump")
        assert np.allclose(result["metric"].sel(stage="output"), expected["metric"].sel(stage="output"), atol=1e-5)


def test_outputs_without_rows_are_refused():
    with pytest.raises(InvalidValue, match=r"^module"):
        diagnose(Returns(lambda loss, logits: loss), GRID, encode="bump")


class Autocast(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, codes):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.layers(codes).float()


@pytest.mark.parametrize("where", ["around", "inside, and back"])
def test_autocast(where):
    fields = {"encode": "bump", "holdout": "center:1:2"}
    for normalise, exact in ((nn.Identity, True), (nn.BatchNorm1d, False)):
        plain = layers(normalise)
        module = plain if where == "around" else Autocast(plain)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=where == "around"):
            result = diagnose(module, GRID, **fields)
            assert torch.is_autocast_enabled("cpu") == (where == "around")
        assert not result.notes
        if exact:
            assert result.attrs["metric"] == "exact"
        else:  # torch mixes the types of tangents and numbers here
            assert "no forward-mode derivative" in result.attrs["metric_reason"]
        expected = diagnose(plain, GRID, **fields, geometry="exact" if exact else "differences")
        one, other = (held["metric"].sel(stage="output").values for held in (result, expected))
        assert np.allclose(one, other, rtol=0.1, atol=0.02)
        assert not np.array_equal(one, other)
        # the measurements themselves have full precision
        assert np.allclose(result["metric"].sel(stage="input"), expected["metric"].sel(stage="input"), atol=1e-6)


def test_inference_mode_around():
    expected = diagnose(layers(), GRID, encode="bump")
    with torch.inference_mode():
        result = diagnose(layers(), GRID, encode="bump")
        assert torch.is_inference_mode_enabled()
    assert np.array_equal(result["metric"], expected["metric"])
    assert result.attrs["metric"] == "exact"


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
        assert diagnose(Recurrent(), GRID).attrs["metric"] == "exact"
    assert torch.backends.mkldnn.enabled == before
