"""What is available, and saying why not: one place for all kernels."""

import importlib
import inspect
import os

import pytest
import torch

from recombine import kernels
from recombine.training import kernels_name
from tests.kernels.compiled import needs_compiler


@pytest.mark.slow
@pytest.mark.parametrize("name", kernels.SHARED)
def test_both_backends_have_the_same_names_and_signatures(name):
    pytest.importorskip("triton")
    ours = [importlib.import_module(f"recombine.kernels.{backend}.{name}") for backend in ("triton", "cpp")]
    public = [
        {
            key: inspect.signature(getattr(value, "forward", value))
            for key, value in vars(module).items()
            if not key.startswith("_") and getattr(value, "__module__", "") == module.__name__
        }
        for module in ours
    ]
    assert public[0] == public[1]
    assert public[0]
    assert kernels.BACKENDS.keys() == kernels.NARROW.keys()


@needs_compiler
def test_kernels_can_be_switched_off_in_a_block():
    device = torch.device("cpu")
    with kernels.without("adamw"):
        assert kernels.implementation("adamw", device) is None
        assert kernels.why_not("cpu", "adamw") == "adamw is switched off"
        with kernels.without("narrow"):
            assert not kernels.available("cpu", "adamw")
            assert not kernels.available("cpu", "narrow")
        assert kernels.available("cpu", "narrow")
    with kernels.without():
        assert not any(kernels.available("cpu", name) for name in kernels.SHARED)
    assert all(kernels.implementation(name, device) for name in kernels.SHARED)


def test_continuous_integration_has_kernels():
    if "CI" in os.environ:
        assert kernels.why_not("cpu") is None


def test_why_there_are_none(monkeypatch):
    assert kernels.why_not("meta") == kernels.why_not(torch.device("meta")) == "no kernels for meta"
    assert kernels_name(torch.device("meta")) == "torch (no kernels for meta)"
    monkeypatch.setenv("RECOMBINE_KERNELS", "off")
    for kind in kernels.BACKENDS:
        assert kernels.implementation("adamw", torch.device(kind)) is None
