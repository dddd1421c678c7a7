"""A cache that no other test sees."""

import pytest

from recombine.data import images as opening


@pytest.fixture(autouse=True)
def cache_folder(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache") / "data"
    monkeypatch.setattr(opening, "folder", lambda: folder)
    return folder
