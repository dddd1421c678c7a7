"""Tutorials run from the first cell to the last: in short; in full, with what their texts say, among the slow tests."""

import os

import pytest
from matplotlib import pyplot

from recombine import DECODERS, HOLDOUTS
from tests.tutorials.findings import FINDINGS
from tests.tutorials.notebooks import NAMES, run

SHORT = {
    "add_a_decoder": {"STEPS": 2, "SEEDS": 1},
    "diagnose_my_model": {"STEPS": 2},
    "encoder_or_decoder": {"STEPS": 2, "SEARCH": 2},
    "fix_my_model": {"STEPS": 2, "LOW_RANK_STEPS": 2, "SEEDS": 1},
    "modules_of_other_libraries": {"UNET_STEPS": 2, "AUTOENCODER_STEPS": 2, "GAN_STEPS": 2, "MASKED_STEPS": 2},
    "my_own_data": {"STEPS": 2, "SEEDS": 1},
    "new_holdout": {"STEPS": 2, "SEEDS": 1},
    "remedy_in_my_loop": {"STEPS": 2, "SEEDS": 1},
    "reproduce_a_figure": {"EPOCHS": 1, "SEEDS": 1},
}
"""Sizes at which nothing is learnt and everything is run."""
NEEDED = {"modules_of_other_libraries": ("diffusers", "transformers")}
"""Packages of the extra `docs`."""


@pytest.fixture(autouse=True)
def apart(tmp_path, monkeypatch):
    """A folder of its own, figures that nobody sees, and registries as they were."""
    monkeypatch.chdir(tmp_path)
    pyplot.switch_backend("agg")
    before = [(registry, set(registry)) for registry in (DECODERS, HOLDOUTS)]
    yield
    pyplot.close("all")
    for registry, names in before:
        for name in set(registry) - names:
            registry.unregister(name)


@pytest.mark.parametrize("name", NAMES)
def test_in_short(name):
    for package in NEEDED.get(name, ()):
        pytest.importorskip(package, reason="pip install -e '.[docs]'")
    assert run(name, SHORT[name])["rc"].__version__
    assert os.listdir()  # runs, pages and reports are written where one works


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_in_full(name):
    FINDINGS[name](run(name))
