"""Studies at a tiny size: trained and measured, what is measured has the form of the golden results.

From these all claims are judged and all figures drawn by other tests. Studies that are trained and measured by
tests/papers are left out; the quick preset runs all, from the command to the page.
"""

import pytest

from recombine.papers.forced_rendering import PAPER as DEFAULT
from recombine.reproduction.reproduce import reproduce
from recombine.reproduction.results import Results
from tests.golden import RESULTS
from tests.tiny import TINY

ELSEWHERE = ("threshold", "markers", "controls", "rotation", "theory", "causal", "prospective")
"""Trained and measured by tests/papers, theory by slow ones."""
STUDIES = [name for name in DEFAULT.studies if name not in ELSEWHERE]
ONE = ("seeds", "penalty_seeds", "theory_seeds", "factors_seeds", "penalty_epochs")
"""One each: that several are there is tested with the golden results."""
FEW = ("steps", "ladder_steps", "mlp_rate_steps", "factors_steps", "factors_low_rank_steps")
"""Five each: what networks have learnt does not matter here."""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The results of one reproduction."""
    place = tmp_path_factory.mktemp("smoke")
    preset = DEFAULT.preset_named("quick").changed([*TINY, *(f"{n}=1" for n in ONE), *(f"{n}=5" for n in FEW)])
    studies = [DEFAULT.studies[name] for name in STUDIES]
    return reproduce(studies, preset, place / "runs", place / "out", device="cpu", paper=DEFAULT)


@pytest.mark.parametrize("name", STUDIES)
def test_data_have_the_form_of_the_golden_ones(name, results):
    """Fewer seeds, and so fewer networks, aside. Where this fails, make the golden results again."""
    found, golden = results.dataset(name), Results.existing(RESULTS).dataset(name)
    assert {part: found[part].dims for part in found} == {part: golden[part].dims for part in golden}
    assert {part: found[part].dtype.kind for part in found} == {part: golden[part].dtype.kind for part in golden}
    for coordinate in set(golden.indexes) - {"seed"}:
        assert list(found[coordinate].values) == list(golden[coordinate].values), coordinate
