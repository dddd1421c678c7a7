"""Examples in documents run in a folder of their own, with a store of their own, so that readers see plain calls."""

import pytest


@pytest.fixture(autouse=True)
def scratch_folder(request, tmp_path, monkeypatch):
    """A folder that an example may write to, and a store that no other example sees."""
    if isinstance(request.node, pytest.DoctestItem):
        import torch

        torch.set_num_threads(1)  # they run side by side
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("RECOMBINE_STORE", str(tmp_path / "runs"))
