"""The committed results: what the package and the documents say of them is what they say."""

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from recombine.papers.forced_rendering import PAPER as DEFAULT
from recombine.reproduction.claims import Judgement, Test
from recombine.reproduction.intervals import Interval
from recombine.reproduction.report.verdicts import (
    brief_table,
    changed_table,
    claim_by_claim,
    markdown_table,
    marked_blocks,
    with_blocks,
)
from recombine.reproduction.results import Results

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "results" / "paper"
JUDGED = json.loads((RESULTS / "claims.json").read_text())
THIRD = ROOT / "results" / "third_edition"


def test_reference_verdicts_are_those_of_the_committed_results():
    assert DEFAULT.reference == {claim["claim"]: claim["headline"] for claim in JUDGED}


def test_the_documents_have_todays_verdicts():
    """README in brief, and one table with all of them."""
    judgements = judged(RESULTS)
    readme = (ROOT / "README.md").read_text()
    assert readme == with_blocks(readme, {"verdicts_in_brief": brief_table(judgements, DEFAULT.sections)})
    assert marked_blocks(readme) == ["verdicts_in_brief"]
    text = (ROOT / "docs" / "verdicts.md").read_text()
    rows = dict(re.findall(r"^\| \*\*(C\d+)\*\* .*? \| ([\w, ]+)(?: \(after the data\))? \| ", text, re.MULTILINE))
    assert rows == DEFAULT.reference


def read(record):
    """A judgement as `claims.json` records it."""

    def restored(own):
        plain = Interval(**own["plain"]) if isinstance(own["plain"], dict) else None
        return Test(**{**own, "interval": Interval(**own["interval"]), "plain": plain})

    parts = {kind: [restored(own) for own in record[kind]] for kind in ("tests", "alternatives", "controls")}
    return Judgement(**{**{name: record[name] for name in Judgement.__dataclass_fields__}, **parts})


def judged(folder):
    """The judgements that a results folder records."""
    return [read(own) for own in json.loads((folder / "claims.json").read_text().replace(": null", ": NaN"))]


def test_the_documents_have_todays_sentences():
    judgements = [replace(own, reference="") for own in judged(RESULTS)]
    made = {
        "verdicts": markdown_table(judgements),
        "verdicts_ours": markdown_table(judgements, ours=True),
        "claims": claim_by_claim(judgements),
    }
    for name in ("verdicts", "reproduction", "cases"):
        text = (ROOT / "docs" / f"{name}.md").read_text()
        assert text == with_blocks(text, made), name


def test_the_third_edition_has_todays_sentences():
    text, judgements = (ROOT / "docs" / "third_edition.md").read_text(), judged(THIRD)
    made = {
        "verdicts": markdown_table(judgements),
        "claims": claim_by_claim(judgements),
        "changed": changed_table(judgements, DEFAULT.editions),
    }
    assert text == with_blocks(text, made)


def test_the_third_edition_is_judged_on_enough_networks_by_criteria_that_are_older():
    for judgement in judged(THIRD):
        assert judgement.timing == "before the data"
        for test in judgement.tests:
            if judgement.described == "exploratory" or test.outcome == "not measured":
                continue
            off_the_truth = test.statistic.startswith("peaks off the truth")  # not every network has such peaks
            assert test.learnt >= (40 if off_the_truth else 48)


def test_criteria_are_older_than_the_data():
    tests = [test for claim in JUDGED for kind in ("tests", "alternatives", "controls") for test in claim[kind]]
    assert {test["timing"] for test in tests} == {"before the data"}


def test_rows_in_other_units_say_what_they_measure():
    for test in (own for claim in JUDGED for own in claim["alternatives"]):
        units = [word for word in ("decades", "share of") if word in test["case"] and word not in test["statistic"]]
        assert bool(test["measures"]) or not units, test["case"]


def test_enough_networks_learnt():
    ours = dict.fromkeys((f"C{number}" for number in range(27, 35)), 32)
    for claim in JUDGED:
        for test in claim["tests"]:
            none = claim["claim"] == "C33" and test["case"].startswith("5 factors")  # said so in docs/reproduction.md
            fewest = 0 if none else {"C15": 64, "C11": 24 * 5, **ours}.get(claim["claim"], 48)
            assert test["learnt"] >= fewest, (claim["claim"], test["case"])


def test_seeds_begin_at_100():
    assert {Results(RESULTS).settings(study)["first_seed"] for study in Results(RESULTS).studies} == {100}


JUDGE = """
import json, sys
from recombine.papers.forced_rendering import PAPER as DEFAULT
from recombine.reproduction.paper import Findings
from recombine.reproduction.results import Results

judgements = Findings(DEFAULT, Results.existing(sys.argv[1])).judgements
print(json.dumps([own.record() for own in judgements]))
"""


@pytest.mark.slow
def test_the_committed_results_are_judged_so():
    """In a process of its own: the checks of shapes that tests add are code, which digests of criteria cover."""
    done = subprocess.run([sys.executable, "-c", JUDGE, str(THIRD)], capture_output=True, text=True, check=True)
    recorded = json.loads((THIRD / "claims.json").read_text())
    assert alike(json.loads(done.stdout), recorded)


def alike(one, other):
    """Whether records are the same, numbers to single precision: processors differ in log10 of float32 Datasets."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(value, other[name]) for name, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(alike, one, other))
    return math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-8) if isinstance(one, float) else one == other
