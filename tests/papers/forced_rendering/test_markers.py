"""The networks of the marker study, and what is measured on them."""

import json

import numpy as np
import pytest
import torch
import xarray

from recombine.papers.forced_rendering import PAPER as DEFAULT
from recombine.papers.forced_rendering import markers_ranking as ranking
from recombine.papers.forced_rendering.markers import (
    FALL,
    FIRST,
    LAST,
    MARKERS,
    MEAN,
    MIDDLE,
    OUTPUT,
    PLACES,
    at_positions,
)
from recombine.papers.forced_rendering.markers_ranking import write_marker_auroc
from recombine.reproduction.results import Results
from recombine.sweep import train
from tests.tiny import TINY

STUDY = DEFAULT.studies["markers"]


def test_positions_of_deep_and_shallow_networks():
    """Stages are input, hidden ones and output; a shallow network has fewer."""
    stages = np.array([[9.0, 1, 2, 3, 4, 6], [9.0, 5, 8, np.nan, np.nan, np.nan]])
    tables = {
        name: (("seed", "stage"), stages) if marker.staged else ("seed", np.array([0.5, 0.25]))
        for name, marker in MARKERS.items()
    }
    found = at_positions(xarray.Dataset(tables))
    assert found.sizes == {"marker": len(MARKERS), "position": len(PLACES), "seed": 2}
    deep, shallow = (found.sel(marker="factorization").isel(seed=k) for k in range(2))
    expected = {FIRST: (1, 5), MIDDLE: (2, 5), LAST: (4, 5), OUTPUT: (6, 8), MEAN: (3.2, 6.5), FALL: (-5, -3)}
    for position, values in expected.items():
        assert (deep.sel(position=position).item(), shallow.sel(position=position).item()) == pytest.approx(values)
    error = found.sel(marker="id_error")
    assert error.sel(position=OUTPUT).values.tolist() == [0.5, 0.25]
    assert error.drop_sel(position=OUTPUT).isnull().all()


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    short = ["marker_seeds=1", "steps=5", "coordinate_steps=5", "penalty_epochs=1", "size=7"]
    preset = DEFAULT.preset_named("quick").changed([*TINY, *short])
    specs = STUDY.specs(preset)
    runs = train(specs, store=tmp_path_factory.mktemp("store"), device="cpu")
    return STUDY.measure(STUDY.trials(preset, torch.device("cpu"), {run.spec.digest: run for run in runs}))


@pytest.mark.slow
def test_every_network_has_every_marker(measured):
    assert measured["value"].dims == ("network", "marker", "position")
    assert measured.sizes["network"] == len(np.unique(measured["arm"]))
    for name in ("decoder", "depth", "code", "holdout", "data", "remedy", "seed", "ood_accuracy", "trained"):
        assert measured[name].dims == ("network",)
    at_output = measured["value"].sel(position=OUTPUT)
    missing = [str(name) for name in measured["marker"].values if at_output.sel(marker=name).isnull().all()]
    assert not missing
    staged = [name for name, marker in MARKERS.items() if marker.staged]
    assert measured["value"].sel(marker=staged, position=[FIRST, MEAN]).notnull().mean() > 0.95
    assert set(measured["marker"].values[measured["needs_targets"].values]) == {"kernel_distance"}


@pytest.mark.integration
def test_a_stored_dataset_is_judged_drawn_and_told(measured, tmp_path, monkeypatch):
    from recombine.reproduction.claims import judge

    monkeypatch.setattr(ranking, "RANKING_RESAMPLES", 20)
    monkeypatch.setattr(ranking, "MODEL_RESAMPLES", 2)
    results = Results(tmp_path)
    results.save("markers", measured, "test")
    (judgement,) = judge([DEFAULT.claims["C21"]], {"markers": Results(tmp_path).dataset("markers")})
    assert judgement.described in ("direction only", "not decidable")
    write_marker_auroc(Results(tmp_path), [judgement], tmp_path / "telling.json")
    assert "networks" in json.loads((tmp_path / "telling.json").read_text())
