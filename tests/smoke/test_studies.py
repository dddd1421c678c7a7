"""Studies through the command line, at a tiny size: train, measure, judge, draw, report.

What is measured has the form of the golden results, from which all figures are drawn by tests/papers. Studies that are
trained and measured there too are left out, and so is what rests on them; the quick preset runs all.
"""

import io
import json

import pytest
import xarray
from PIL import Image

from recombine.manifest import write_into
from recombine.papers import DEFAULT
from recombine.reproduction import reporting
from recombine.reproduction.paper import Findings
from recombine.reproduction.results import Results
from tests.command import run
from tests.golden import RESULTS
from tests.tiny import TINY

ELSEWHERE = ("threshold", "markers", "controls", "rotation")
"""Trained and measured by tests/papers."""
STUDIES = [name for name in DEFAULT.studies if name not in ELSEWHERE]
FIGURES = [name for name, spec in DEFAULT.figures.items() if not set(spec.studies) & set(ELSEWHERE)]
ONE = ("seeds", "penalty_seeds", "theory_seeds", "factors_seeds", "penalty_epochs")
"""One each: that several are there is tested with the golden results."""
FEW = ("steps", "mlp_rate_steps", "factors_steps", "factors_low_rank_steps")
"""Five each: what networks have learnt does not matter here."""
DRAWN = ("fig1", "factors")
"""Figures that are drawn; that takes longest."""


def empty_picture():
    content = io.BytesIO()
    Image.new("L", (1, 1)).save(content, "PNG")
    return content.getvalue()


EMPTY = empty_picture()


def draw_some(patched):
    """Draw and save some figures only; in the place of others an empty one."""
    draw, save = Findings.draw, reporting.save_figure

    def saved(figure, folder, name):
        if figure is not None:
            return save(figure, folder, name)
        contents = {"png": EMPTY, "svg": b"<svg></svg>"}
        write_into(folder, {f"{name}.{kind}": content for kind, content in contents.items()})
        return contents

    patched.setattr(Findings, "draw", lambda own, spec: draw(own, spec) if spec.name in DRAWN else None)
    patched.setattr(reporting, "save_figure", saved)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """The folder of one reproduction."""
    place = tmp_path_factory.mktemp("smoke")
    settings = dict(own.split("=") for own in TINY) | dict.fromkeys(ONE, "1") | dict.fromkeys(FEW, "5")
    flags = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    words = ["reproduce", *STUDIES, *flags, "--device", "cpu", "--processes", "1"]
    with pytest.MonkeyPatch.context() as patched:
        draw_some(patched)
        assert run(*words, "--store", str(place / "runs"), "--out", str(place / "out")) == 0
    return place / "out"


@pytest.mark.parametrize("name", STUDIES)
def test_study_from_command_to_page(name, out):
    found = xarray.load_dataset(out / "data" / f"{name}.nc", engine="h5netcdf")
    assert found.sizes.get("seed", 1) >= 1
    judged = {claim["claim"] for claim in json.loads((out / "claims.json").read_text())}
    claims = [own.name for own in DEFAULT.claims.values() if name in own.studies and not {*own.studies} & {*ELSEWHERE}]
    assert judged >= set(claims)
    page = (out / "index.html").read_text()
    assert all(f"<strong>{claim}</strong>" in page for claim in claims)


@pytest.mark.parametrize("name", STUDIES)
def test_data_have_the_form_of_the_golden_ones(name, out):
    """Fewer seeds, and so fewer networks, aside. Where this fails, make the golden results again."""
    found, golden = Results.existing(out).dataset(name), Results.existing(RESULTS).dataset(name)
    assert {part: found[part].dims for part in found} == {part: golden[part].dims for part in golden}
    assert {part: found[part].dtype.kind for part in found} == {part: golden[part].dtype.kind for part in golden}
    for coordinate in set(golden.indexes) - {"seed"}:
        assert list(found[coordinate].values) == list(golden[coordinate].values), coordinate


@pytest.mark.parametrize("name", FIGURES)
def test_figure_is_drawn(name, out):
    png, svg = (out / "figures" / f"{name}.{kind}" for kind in ("png", "svg"))
    if name in DRAWN:
        assert png.stat().st_size > 5000
        assert b"<svg" in svg.read_bytes()[:2000]
    assert png.exists()
    assert svg.exists()
    assert f'id="{name}"' in (out / "index.html").read_text()
