"""The command line says how the metric was computed, what was done to rows, and which stages a pattern took."""

import pytest
import xarray

from recombine.cli import main

SOURCE = """
import torch
from torch import nn

class Lost(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Linear(8, 6)
        self.body = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6)])

    def forward(self, codes):
        hidden = self.body[0](self.lift(codes)).detach()
        return self.body[1](hidden).softmax(dim=0)

def batch_statistics():
    return nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6, track_running_stats=False))

class FailsLater(nn.Linear):
    def forward(self, codes):
        if len(codes) > 5:  # more than are tried first
            raise KeyError("no such row")
        return super().forward(codes)

def fails_later():
    return FailsLater(8, 3)

def lazy():
    return nn.Sequential(nn.LazyLinear(3))
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    (tmp_path / "parts_of_mine.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def command(words):
        with pytest.raises(SystemExit) as caught:
            main(["diagnose", *words.split(), "--grid", "x=0:3,y=0:3", "--encoding", "bump"])
        out, err = capsys.readouterr()
        return caught.value.code, out, err

    return command


def test_the_tail_of_the_table(run, tmp_path):
    code, out, err = run("parts_of_mine:Lost --out drawn")
    assert code == 0, err
    tail = out.splitlines()
    assert "metric: finite differences, since the derivative is lost at body.1" in tail
    assert "note: outputs depend on other examples in the batch (from output on): each example was run alone" in tail
    stored = xarray.load_dataset(tmp_path / "drawn" / "diagnosis.nc", engine="h5netcdf")
    assert stored.attrs["notes"].splitlines() == [
        "outputs depend on other examples in the batch (from output on): each example was run alone",
        "constant when examples are run alone: output",
    ]
    assert stored["volume"].attrs["metric_reason"] == "since the derivative is lost at body.1"


def test_patterns_of_stages(run):
    code, out, err = run("parts_of_mine:Lost --stages body.* --geometry differences")
    assert code == 0, err
    assert [word in out for word in ("body.0", "body.1", "lift")] == [True, True, False]
    assert "metric: finite differences, as requested" in out.splitlines()


def test_a_sample_and_a_plane(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text("from torch import nn\nmodule = nn.Sequential(nn.Linear(18, 5), nn.Tanh())\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    words = "diagnose mine.py:module --grid x=0:5,y=0:5,size=0:5 --encoding bump --points 100 --seed 1"
    with pytest.raises(SystemExit) as caught:
        main([*words.split(), "--out", "drawn", "--plane", "x,size", "--at", "y=2"])
    out, err = capsys.readouterr()
    assert caught.value.code == 0, err
    assert "note: 100 of 216 points" in out
    assert "±" in out
    assert (tmp_path / "drawn" / "volume.png").is_file()


@pytest.mark.parametrize(
    "words",
    ["Lost --geometry exact", "batch_statistics --stages 2.*", "lazy", "Lost --plane x,size --out drawn",
     "Lost --at x=1 --out drawn", "Lost --points 3", "Lost --memory 0", "fails_later"],
)  # fmt: skip
def test_refusals_are_one_line_and_write_nothing(run, tmp_path, words):
    code, out, err = run(f"parts_of_mine:{words}")
    assert code == 2
    assert err.count("\n") == 1
    assert not out  # nothing was measured
    assert not list((tmp_path / "drawn").glob("*"))
