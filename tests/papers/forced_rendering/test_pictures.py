"""Every figure beside its golden picture, and its caption beside its data."""

import re
from pathlib import Path

import pytest
from matplotlib.testing.compare import compare_images

from recombine.errors import listed
from recombine.papers.forced_rendering import PAPER as DEFAULT
from recombine.reproduction.paper import Findings
from recombine.reproduction.reporting import rendered
from recombine.reproduction.results import Results
from tests.golden import PICTURES, RESULTS
from tests.golden.pictures import drawn

FIGURES = DEFAULT.figures
COMMITTED = Path(__file__).parents[3] / "results" / "paper"
LARGE = ("fig6", "fig9", "fig11", "fig13", "markers", "theory", "factors")  # seconds each
TOLERANCE = 3.0
"""Root mean square of grey values: another machine's rounding passes, a panel that moved does not."""


@pytest.fixture(scope="module")
def results():
    return Results.existing(RESULTS)


@pytest.mark.parametrize(
    "name",
    [name if spec.numbered else pytest.param(name, marks=pytest.mark.slow) for name, spec in FIGURES.items()],
)
def test_figure_looks_as_it_did(name, results, tmp_path):
    found = tmp_path / f"{name}.png"
    found.write_bytes(drawn(FIGURES[name], results))
    assert compare_images(str(PICTURES / f"{name}.png"), str(found), TOLERANCE) is None


@pytest.fixture(scope="module")
def committed():
    return Findings(DEFAULT, Results.existing(COMMITTED))


@pytest.mark.parametrize(
    "name", [pytest.param(own, marks=pytest.mark.slow) if own in LARGE else own for own in FIGURES]
)
def test_committed_picture_shows_committed_data(name, committed, tmp_path):
    """Those that differ are drawn again by `recombine figure NAME --from results/paper`; look at them."""
    spec = FIGURES[name]
    if missing := [study for study in spec.studies if study not in committed.studies]:
        pytest.skip(f"{listed(missing)} of results/paper: none, or measured by an older version")
    found = tmp_path / f"{name}.png"
    found.write_bytes(rendered(committed.draw(spec), ["png"])["png"])
    assert compare_images(str(COMMITTED / "figures" / f"{name}.png"), str(found), TOLERANCE) is None


def test_a_changed_figure_is_noticed(results, tmp_path):
    changed = results.dataset("encoder").copy(deep=True)
    changed["distance_mse"][:] = changed["distance_mse"] * 100
    other = Results(tmp_path)
    other.save("encoder", changed, "fingerprint")
    found = tmp_path / "encoder.png"
    found.write_bytes(drawn(FIGURES["encoder"], other))
    assert compare_images(str(PICTURES / "encoder.png"), str(found), TOLERANCE) is not None


@pytest.mark.parametrize("name", FIGURES)
def test_caption_is_one_sentence_and_the_table_has_rows_of_one_length(name, results):
    spec = FIGURES[name]
    data = [results.dataset(study) for study in spec.studies]
    caption = spec.caption(*data)
    assert len(caption) > 80
    assert re.fullmatch(r"[^.]*(\.\d[^.]*)*\.", caption)
    table = spec.table(*data) if spec.table else []
    assert len({len(row) for row in table}) <= 1
    assert not re.search(r"<xarray|array\(|None\b|nan\b", caption + str(table))


def test_all_fifteen_figures_are_there():
    assert [f"fig{k}" for k in range(1, 16)] == [name for name in FIGURES if name.startswith("fig")]
