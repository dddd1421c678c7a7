"""Criteria are older than the data that they judge: the commit that ran a study already has its records."""

import json
import subprocess
from pathlib import Path

import pytest

from recombine.papers.forced_rendering import PAPER as DEFAULT
from recombine.reproduction.criteria import record_digest
from recombine.reproduction.results import CRITERIA, Results

ROOT = Path(__file__).parents[3]
THIRD = Results(ROOT / "results" / "third_edition")
FOLDERS = ("results/third_edition", "results/paper")
"""Where criteria of the third edition were registered, the second one before its first run."""


def registered_at(commit: str) -> set[str]:
    """Digests of the records in the criteria files of a commit; skips where the history is not there."""
    digests: set[str] = set()
    for folder in FOLDERS:
        command = ["git", "-C", str(ROOT), "show", f"{commit}:{folder}/{CRITERIA}"]
        shown = subprocess.run(command, capture_output=True, text=True)
        if shown.returncode == 0:
            known = json.loads(shown.stdout)
            digests |= {record_digest(record) for own in known.values() for record in own["records"]}
    if not digests:
        pytest.skip("no history of the results here")
    return digests


def judged_by(study):
    return [claim for claim in DEFAULT.claims.values() if study in (*claim.studies, *claim.beside)]


@pytest.mark.parametrize("study", [*filter(judged_by, THIRD.studies)])  # others are only drawn
def test_the_commit_that_ran_a_study_has_the_criteria_of_its_claims(study):
    data = THIRD.dataset(study)
    before = registered_at(str(data.attrs["commit"]))
    for claim in judged_by(study):
        records = THIRD.criteria[claim.name]["records"]
        assert {record_digest(record) for record in records} <= before, claim.name
        assert {record["criterion"]["unseen_seeds"] for record in records} == {"1000 and up"}
    settings = THIRD.settings(study)
    assert (settings["name"], settings["first_seed"]) == ("paper", 1000)


def test_every_claim_is_registered_as_it_is_judged():
    for name, claim in DEFAULT.claims.items():
        assert THIRD.criteria[name]["records"] == claim.records(DEFAULT.versions), name
