"""Networks that compose, superpose, draw at random or did not learn get the verdicts that they should."""

import pytest

from recombine.papers.forced_rendering import PAPER as DEFAULT
from recombine.reproduction.claims import judge
from tests.judged import differing
from tests.papers.forced_rendering.planted import NETWORKS, planted_datasets

CLAIMS = ("C1", "C2", "C3", "C19")
VERDICTS = {
    "composer": ("no", "no", "reversed", "no"),
    # the kernel of a sum of memories is an OR over memorised outputs and a sum among held-out ones
    "superposer, equal weights": ("yes", "yes", "no", "yes"),
    "superposer, sparse weights": ("yes", "yes", "no", "yes"),
    "random features": ("yes", "no", "no", "partly"),
    "did not learn": ("not decidable",) * 4,
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_verdicts_on_planted_networks(kind):
    judged = judge([DEFAULT.claims[name] for name in CLAIMS], planted_datasets(kind))
    assert {own.claim: own.described for own in judged} == dict(zip(CLAIMS, VERDICTS[kind], strict=True))


def test_alternatives_agree_on_a_plain_superposer():
    """Equal weights make every form of superposition explain all there is to explain."""
    [judged] = judge([DEFAULT.claims["C2"]], planted_datasets("superposer, equal weights"))
    assert {test.case.partition(", ")[2] for test in differing(judged)} <= {"share of seeds less a half"}  # of eight
    assert len(judged.alternatives) >= 12
