"""Every study through the command line, at a tiny size: train, measure, judge, draw, report."""

import json

import pytest
import xarray

from recombine.cli import main
from recombine.figures import FIGURES
from recombine.studies import STUDIES
from tests.tiny import FLAGS


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A store that the studies share, as they do in a reproduction."""
    return tmp_path_factory.mktemp("smoke")


def run(*words):
    with pytest.raises(SystemExit) as caught:
        main([str(word) for word in words])
    return caught.value.code


@pytest.mark.parametrize("name", STUDIES)
def test_study_from_command_to_page(name, place, capsys):
    out = place / name
    code = run(
        "reproduce", name, *FLAGS, "--device", "cpu", "--processes", 1, "--store", place / "runs", "--out", out
    )  # fmt: skip
    assert code == 0
    assert "report:" in capsys.readouterr().out
    found = xarray.load_dataset(out / "data" / f"{name}.nc", engine="h5netcdf")
    assert found.sizes.get("seed", 1) >= 1
    judged = {claim["claim"] for claim in json.loads((out / "claims.json").read_text())}
    assert judged == set(STUDIES[name].claims)
    own = [spec.name for spec in FIGURES.values() if spec.studies == (name,)]
    for figure in own:
        assert (out / "figures" / f"{figure}.png").stat().st_size > 5000
        assert b"<svg" in (out / "figures" / f"{figure}.svg").read_bytes()[:2000]
    page = (out / "index.html").read_text()
    assert all(f'id="{figure}"' in page for figure in own)
    assert all(f"<strong>{claim}</strong>" in page for claim in judged)
