"""What is available, and saying why not: one place for all kernels."""

import importlib
import inspect
import os
import weakref

import pytest
import torch

from recombine import kernels
from recombine.kernels.cpp import build
from recombine.training import kernels_name
from tests.kernels.compiled import needs_compiler


def test_a_device_and_its_type_are_the_same_question():
    for kind in ("cpu", "cuda", "meta"):
        assert kernels.available(kind) == kernels.available(torch.device(kind))
    assert kernels.why_not("meta") == "no kernels for meta"
    assert kernels_name(torch.device("meta")) == "torch (no kernels for meta)"


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
    for module in ours:
        assert kernels.BACKENDS.keys() == kernels.NARROW.keys()
        assert module.__doc__


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


def test_nothing_is_used_where_the_environment_says_no(monkeypatch):
    monkeypatch.setenv("RECOMBINE_KERNELS", "off")
    for kind in kernels.BACKENDS:
        assert kernels.why_not(kind) == "RECOMBINE_KERNELS says so"
        assert kernels.implementation("adamw", torch.device(kind)) is None


def test_continuous_integration_has_kernels():
    if "CI" in os.environ:
        assert kernels.why_not("cpu") is None


def test_asking_often_for_what_is_not_there_keeps_nothing(monkeypatch, tmp_path):
    """An error that is kept and raised again would hold on to every caller's frame, and their tensors."""
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    build.library_or_reason.cache_clear()

    class Large:
        pass

    def caller():
        held = Large()
        assert not kernels.available("cpu")
        with pytest.raises(build.NotBuilt):
            build.library()
        return weakref.ref(held)

    try:
        assert all(caller()() is None for _ in range(3))
    finally:
        monkeypatch.undo()
        build.library_or_reason.cache_clear()
