"""Criteria are data: whatever a verdict depends on changes the digest of its record."""

import json
from dataclasses import replace

import pytest

import recombine as rc
from recombine.papers.forced_rendering import PAPER as DEFAULT
from recombine.reproduction.claims import Statement, judge
from recombine.reproduction.criteria import Learnt, record_digest
from recombine.reproduction.reproduce import reproduce
from recombine.reproduction.results import Results
from tests.tiny import TINY

CLAIM = DEFAULT.claims["C5"]
STATEMENT = CLAIM.statements[0]
BEFORE = CLAIM.record("tests", STATEMENT, DEFAULT.versions)


@pytest.mark.parametrize(
    "change",
    [
        {"low": 0.01},
        {"combine": "any"},
        {"correction": "none"},
        {"confidence": 0.9},
        {"trim": 0.1},
        {"learnt": Learnt(largest_error=0.2)},
        {"parameters": {"threshold": 0.3}},
        {"combine": "contrast"},
        {"word": "specific"},
        {"both_means": False},
        {"stage": "output"},
        {"region": "interior"},
        {"contrast": "failing less composing"},
        {"cases": ("bump",)},
        {"unseen_seeds": "1000–1055"},
    ],
    ids=str,
)
def test_whatever_a_verdict_depends_on_changes_the_digest(change):
    statement = replace(STATEMENT, criterion=STATEMENT.criterion.replace(**change))
    record = CLAIM.record("tests", statement, DEFAULT.versions)
    assert record_digest(record) != record_digest(BEFORE)
    bare = Statement(statement.criterion, cases=lambda data, **parameters: {})
    changed = replace(CLAIM, statements=(bare,))
    (judgement,) = judge([changed], dict.fromkeys(CLAIM.studies), {record_digest(BEFORE)}, DEFAULT.versions)
    assert judgement.timing == "after the data"


def test_a_raised_version_changes_it_and_a_metric_of_another_name_does_not():
    def digest(**versions):
        return record_digest(CLAIM.record("tests", STATEMENT, {**DEFAULT.versions, "depth": versions}))

    assert digest(study=1, hits=1) == digest(study=1, counted=1) != digest(study=1, hits=2)


def test_records_go_through_a_file_unchanged_and_differ():
    records = [record for claim in DEFAULT.claims.values() for record in claim.records(DEFAULT.versions)]
    digests = [record_digest(json.loads(json.dumps(record))) for record in records]
    assert digests == [record_digest(record) for record in records]
    assert len(set(digests)) == len(digests)
    assert {record["part"] for record in CLAIM.records(DEFAULT.versions)} == {"tests", "alternatives", "controls"}


def test_criteria_are_registered_before_the_data_and_stay(tmp_path, monkeypatch):
    preset = rc.PRESETS["quick"].changed([*TINY, "steps=2", "seeds=1"])

    def again():
        reproduce(DEFAULT.studies["encoder"], preset, tmp_path / "runs", tmp_path / "out", device="cpu", paper=DEFAULT)
        return Results(tmp_path / "out").criteria

    first = again()
    assert list(first) == sorted(DEFAULT.claims)
    assert set(first["C26"]) == {"date", "commit", "records"}
    for name in ("C26", "C4"):  # of the first there are data, of the other none yet
        statement = DEFAULT.claims[name].statements[0]
        stricter = replace(statement, criterion=statement.criterion.replace(low=9.0))
        monkeypatch.setitem(DEFAULT.claims, name, replace(DEFAULT.claims[name], statements=(stricter,)))
    then = again()
    assert then["C26"] == first["C26"]
    assert then["C4"]["records"][0]["criterion"]["low"] == 9.0
    timings = {own.claim: own.timing for own in rc.Findings(DEFAULT, Results(tmp_path / "out")).judgements}
    assert timings["C26"] == "after the data"


def test_what_was_registered_by_digests_of_source_text_is_not_known_any_more(tmp_path):
    results = Results(tmp_path)
    results.digests.replace({"criteria.json": b'{"C1": {"held-out accuracy": "3ab623e54c878671"}}'})
    assert results.registered is None
