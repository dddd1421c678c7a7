"""How telling numbers have been, next to the numbers of a diagnosis."""

import re

import numpy as np
import pytest
import torch
import xarray
from torch import nn

import recombine
from recombine.diagnosis import Diagnosis
from recombine.diagnosis import result as results
from recombine.tasks import BumpTask

TASK = BumpTask(size=6)
SENTENCE = "512 networks that learnt (300 CNN, 212 MLP), 210 of which compose"


def score(auroc, higher=True, fall=False):
    interval = {"low": auroc - 0.1, "high": auroc + 0.1}
    return {"auroc": auroc, **interval, "higher": higher, "position": "output", "fall": fall}


RECORD = {
    "networks": SENTENCE,
    "numbers": {
        "factorization_mean": score(0.812),
        "log_volume_std": score(0.7, higher=False),
        "probe_held_out": score(0.6, fall=True),
        "id_error": score(0.55, higher=False),
        "superposition memorised": score(0.88, higher=False),
        "no_such_number": score(0.99),
    },
}


def diagnosis():
    module = nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 36), nn.Unflatten(1, (6, 6)))
    return recombine.diagnose(
        module, TASK.grid, encode="bump", holdout="center:2:4", targets=TASK.render(TASK.grid.points)
    )


@pytest.fixture
def planted(monkeypatch):
    monkeypatch.setattr(results, "packaged", lambda: RECORD)


def test_the_table_has_an_auroc_under_each_number(planted):
    table = diagnosis().summary_table()
    assert len({len(cells) for cells in table.values()}) == 1
    last = {heading: cells[-1] for heading, cells in table.items()}
    assert last["stage"] == "AUROC"
    assert last["factorization"] == "0.81 ↑"
    assert last["std of log10 volume"] == "0.70 ↓"
    assert last["probe R² (held out)"] == "0.60 fall ↑"
    assert last["effective rank"] == "–"


def test_the_dataset_has_it_too(planted, tmp_path):
    result = diagnosis()
    attributes = result["factorization_mean"].attrs
    assert [attributes[name] for name in ("auroc", "auroc_low", "auroc_high")] == pytest.approx([0.812, 0.712, 0.912])
    assert attributes["auroc_meaning"].startswith("composing networks")
    assert result["log_volume_std"].attrs["auroc_meaning"].startswith("failing networks")
    assert set(result.marker_auroc["numbers"]) == set(RECORD["numbers"]) - {"no_such_number"}
    result.to_netcdf(tmp_path / "diagnosis.nc", engine="h5netcdf")
    with xarray.open_dataset(tmp_path / "diagnosis.nc", engine="h5netcdf") as stored:
        again = Diagnosis(stored.data_vars, coords=stored.coords, attrs=stored.attrs)
        assert again.summary() == result.summary()


class Drawer(nn.Module):
    """Draws the truth, but blank images in a region."""

    def __init__(self, blank):
        super().__init__()
        points = TASK.grid.points
        drawn = TASK.render(points)
        self.register_buffer("codes", TASK.codes(points).float())
        self.register_buffer("drawn", torch.where(blank[:, None, None], 0.0, drawn).float())

    def forward(self, codes):
        return self.drawn[torch.cdist(codes, self.codes).argmin(dim=1)]


@pytest.mark.parametrize(
    ("blank", "advised", "outcome"),
    [
        ("held out", True, "does not compose"),
        ("nowhere", False, "composes"),
        ("everywhere", False, "not learnt"),
        ("kept", False, "not learnt"),
    ],
)
def test_advice_is_for_modules_that_learnt_and_do_not_compose(monkeypatch, blank, advised, outcome):
    monkeypatch.setattr(results, "packaged", lambda: {**RECORD, "advice": ["draw better"]})
    held_out = TASK.held_out
    regions = {"held out": held_out, "kept": ~held_out, "nowhere": held_out & False, "everywhere": held_out | True}
    truth = TASK.render(TASK.grid.points)
    result = recombine.diagnose(
        Drawer(regions[blank]), TASK.grid, encode="bump", holdout=held_out, targets=truth, geometry="differences"
    )
    assert bool(result.advice) is advised
    assert ("draw better" in result.summary_lines()) is advised
    assert result.outcome == outcome
    assert any(line.startswith(f"outcome: {outcome}:") for line in result.summary_lines())
    mean = truth[~held_out].mean(dim=0)
    constant = ((truth - mean) ** 2)[held_out].mean()
    expected = float((truth**2)[held_out].mean() / constant) if blank in ("held out", "everywhere") else 0.0
    assert float(result["ood_over_mean"]) == pytest.approx(expected, abs=1e-6)


def test_aurocs_below_chance_are_not_shown(monkeypatch):
    record = {**RECORD, "numbers": {"factorization_mean": score(0.42), "id_error": score(0.5)}}
    monkeypatch.setattr(results, "packaged", lambda: record)
    assert "AUROC" not in diagnosis().summary()


def test_advice_does_not_depend_on_known_aurocs(monkeypatch):
    monkeypatch.setattr(results, "packaged", lambda: {**RECORD, "numbers": {}, "advice": ["draw better"]})
    result = recombine.diagnose(
        Drawer(TASK.held_out), TASK.grid, encode="bump", holdout=TASK.held_out,
        targets=TASK.render(TASK.grid.points), metrics=["ood_over_mean"],
    )  # fmt: skip
    assert "draw better" in result.summary()
    assert "AUROC" not in result.summary()


def test_the_packaged_advice_rests_on_supported_claims():
    from recombine.papers.forced_rendering import PAPER as DEFAULT

    sentences = results.packaged()["advice"]
    assert sentences
    for text in sentences:
        claim, outcome = re.search(r"\((C\d+): (\w+); found on the paper's bumps", text).groups()
        assert DEFAULT.reference[claim] == outcome == "described"
        assert len(text) < 180


def test_every_number_of_the_packaged_record_is_one_of_a_diagnosis():
    result = diagnosis()
    cases = {f"{name} {case}" for name in ("superposition", "kernel_agreement")
             for case in np.atleast_1d(result[result[name].dims[0]].values)}  # fmt: skip
    assert set(results.packaged().get("numbers", {})) <= {str(name) for name in result.variables} | cases
