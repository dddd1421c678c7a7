"""`recombine diagnose`, as a user types it."""

import numpy as np
import pytest
import torch
import xarray
from safetensors.torch import save_file

import recombine as rc
from recombine.reproduction.measuring import Batch, stage_profile
from recombine.sweep import train
from tests.command import captured as run
from tests.metrics.comparison import assert_same_profile
from tests.small import small_spec

SOURCE = """
from tests.small import small_spec

def decoder():
    return small_spec("cnn").module()

def number():
    return 3

module = small_spec("mlp").module()
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a user's own code, in which commands are given."""
    (tmp_path / "mycode.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_table_dataset_and_figures(place, capsys):
    spec = small_spec("cnn", seed=5)
    save_file(spec.module().state_dict(), place / "w.safetensors")
    np.save(place / "targets.npy", spec.task.render(spec.task.grid.points).numpy())
    line = "diagnose mycode:decoder --weights w.safetensors --grid x=0:7,y=0:7 --encoding bump --holdout center:2:5"
    code, out, err = run(f"{line} --targets targets.npy --out found", capsys)
    assert code == 0, err
    for word in ("stages.layer1", "factorization", "held out", "superposition memorised", "kernel_agreement binary"):
        assert word in out
    result = xarray.open_dataset(place / "found" / "diagnosis.nc", engine="h5netcdf")
    assert result["metric"].shape == (5, 8, 8, 2, 2)
    for name in ("stages.png", "stages.svg", "volume.png", "volume.svg"):
        assert (place / "found" / name).stat().st_size > 5000
    assert run("diagnose mycode:module --grid x=0:7,y=0:7 --encoding bump --stages stages.layer1", capsys)[0] == 0


def test_a_stored_run_needs_nothing_else(place, store_path, capsys):
    (stored,) = train([small_spec("cnn", task={"polarity": "dark"})], store_path)
    code, out, err = run(f"diagnose run:{stored.key[:8]} --out found", capsys)
    assert code == 0, err
    assert "superposition truth" in out
    result = xarray.open_dataset(place / "found" / "diagnosis.nc", engine="h5netcdf")
    assert float(result["ood_error"]) == pytest.approx(stored.scores["ood_mse"], rel=1e-3)
    assert int(result["held_out"].sum()) == int(stored.spec.task.held_out.sum())
    profile = stage_profile(Batch([stored], torch.device("cpu")))
    assert_same_profile(result, {name: values[0] for name, values in profile.items()})
    config = rc.ModelConfig.from_pretrained(stored.save_pretrained(place / "model"))
    assert rc.diagnose(config).identical(rc.diagnose(stored))
    assert run("diagnose model", capsys)[:2] == (0, out.replace("written to found\n", ""))
    assert run(f"explore model run:{stored.key} --out page.html", capsys)[0] == 0
    mistakes = {"run:zzz": "zzz", "model --grid x=0:7": "grid", ".": "config.json", "model --store s": "store"}
    for words, expected in mistakes.items():
        code, _, err = run(f"diagnose {words}", capsys)
        assert code == 2
        assert expected in err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("nowhere:thing --grid x=0:7,y=0:7", "nowhere"),
        ("mycode:number --grid x=0:7,y=0:7", "not int"),
        ("mycode:decoder", "grid"),
        ("mycode:decoder --grid x=0:7,y=0:7", "accepts encoded rows of shape"),
        ("mycode:decoder --grid x=0:7,y=0:7 --encoding braille", "encoding"),
        ("mycode:decoder --grid x=0:7,y=0:7 --encoding bump --stages layer9", "stages"),
        ("mycode:decoder --grid x=0:7,y=0:7 --encoding bump --weights saved.pt", "safetensors.torch.save_file(module"),
        ("mycode:decoder --grid x=0:7,y=0:7 --encoding onehot --geometry exact", "geometry"),
        ("mycode:decoder --grid x=0:7,y=0:7 --encoding bump --out mycode.py", "out"),
        ("mycode:decoder --grid x=0:7,y=0:7 --turn 3", "turn"),
        ("mycode:decoder --data x.npz --grid x=0:7", "grid"),
    ],
)
def test_mistakes_are_one_line(place, capsys, words, expected):
    torch.save({}, place / "saved.pt")
    code, _, err = run(f"diagnose {words}", capsys)
    assert code == 2, err
    assert err.count("\n") == 1, err
    assert expected in err
