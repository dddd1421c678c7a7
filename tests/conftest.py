"""Shapes and types are checked at run time in every test."""

import pkgutil
from importlib.util import find_spec

from jaxtyping import install_import_hook

import tests.shape_checks  # noqa: F401  the hook finds it by name

PARTS = [part.name for part in pkgutil.iter_modules(find_spec("recombine").submodule_search_locations)]
LEFT_OUT = {"kernels", "checks"}  # Triton reads its kernels' source itself; checks hold axes against each other
install_import_hook(
    [f"recombine.{part}" for part in PARTS if part not in LEFT_OUT],
    "tests.shape_checks.checked",
)

import pytest  # noqa: E402
import torch  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread():
    """Tests run side by side; one thread each is fastest and keeps bits the same on every machine size."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def store_path(tmp_path, monkeypatch):
    """A place for a store that no other test sees, and where commands look by default."""
    path = tmp_path / "store"
    monkeypatch.setenv("RECOMBINE_STORE", str(path))
    return path
