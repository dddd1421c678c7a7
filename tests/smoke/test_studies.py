"""Every study through the command line, at a tiny size: train, measure, judge, draw, report."""

import io
import json

import pytest
import xarray
from matplotlib import pyplot
from PIL import Image

from recombine.digests import write_into
from recombine.papers import DEFAULT
from recombine.reproduction.report import drawing
from tests.command import run
from tests.tiny import TINY

SEEDS = ("seeds", "penalty_seeds", "rotation_seeds", "marker_seeds", "theory_seeds", "factors_seeds")
"""One each: that several are there is tested with the golden results."""
LAID_OUT = ("fig1", "markers")
"""Figures that are laid out and saved; that takes longest, and is tested for all of them with the golden results."""


def empty_picture():
    content = io.BytesIO()
    Image.new("L", (1, 1)).save(content, "PNG")
    return content.getvalue()


EMPTY = empty_picture()


def saved_or_closed(save):
    """`save_drawn` for some figures; others are drawn and no more."""

    def saved(figure, folder, name):
        if name in LAID_OUT:
            return save(figure, folder, name)
        assert figure.axes or figure.subfigs
        pyplot.close(figure)
        contents = {"png": EMPTY, "svg": b"<svg></svg>"}
        write_into(folder, {f"{name}.{kind}": content for kind, content in contents.items()})
        return contents

    return saved


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """The folder of one reproduction of all studies."""
    place = tmp_path_factory.mktemp("smoke")
    settings = [*(own for own in TINY if not own.startswith("seeds=")), *(f"{name}=1" for name in SEEDS)]
    flags = [word for own in settings for word in ("--set", own)]
    words = ["reproduce", *flags, "--device", "cpu", "--processes", "1"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(drawing, "save_drawn", saved_or_closed(drawing.save_drawn))
        assert run(*words, "--store", str(place / "runs"), "--out", str(place / "out")) == 0
    return place / "out"


@pytest.mark.parametrize("name", DEFAULT.studies)
def test_study_from_command_to_page(name, out):
    found = xarray.load_dataset(out / "data" / f"{name}.nc", engine="h5netcdf")
    assert found.sizes.get("seed", 1) >= 1
    judged = {claim["claim"] for claim in json.loads((out / "claims.json").read_text())}
    claims = [claim.name for claim in DEFAULT.claims.values() if name in claim.studies]
    assert judged >= set(claims)
    page = (out / "index.html").read_text()
    assert all(f"<strong>{claim}</strong>" in page for claim in claims)


@pytest.mark.parametrize("name", DEFAULT.figures)
def test_figure_is_drawn(name, out):
    png, svg = (out / "figures" / f"{name}.{kind}" for kind in ("png", "svg"))
    if name in LAID_OUT:
        assert png.stat().st_size > 5000
        assert b"<svg" in svg.read_bytes()[:2000]
    assert png.exists()
    assert svg.exists()
    assert f'id="{name}"' in (out / "index.html").read_text()
