"""Verdicts from numbers: known answers."""

import json
from dataclasses import replace

import numpy as np
import pytest

from recombine.errors import InvalidValue
from recombine.reproduction.claims import Claim, Sample, Statement, judge
from recombine.reproduction.criteria import Learnt, effect, record_digest
from recombine.reproduction.report.verdicts import (
    DIRECTION,
    claim_by_claim,
    explained,
    network_count,
    robustness,
    statements,
    verdict_text,
)

NETWORKS = 48
STUDIES = {"study": None}


def planted(mean, spread=0.05, networks=NETWORKS, learnt=None):
    """Numbers of networks about a mean; all learnt unless a number is given."""
    values = mean + spread * np.random.default_rng(round(1000 * abs(mean)) + networks).standard_normal(networks)
    counted = np.arange(networks) < (networks if learnt is None else learnt)
    return Sample(values, counted, np.ones(networks, dtype=bool))


def claim(name="C1", criterion=None, alternatives=None, controls=None, exploratory=False, **cases):
    criterion = criterion or effect("an effect", 0.1)
    samples = {
        kind: (lambda data, own=own: own or {})
        for kind, own in (("cases", cases), ("alternatives", alternatives), ("controls", controls))
    }
    return Claim(name, "It is so", "§1", (Statement(criterion, **samples),), ("study",), exploratory=exploratory)


def verdict(*claims):
    return [judgement.verdict for judgement in judge(claims, STUDIES)]


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ((0.3, 0.4), "supported"),
        ((0.3, 0.0), "partly supported"),
        ((0.3, 0.1), "partly supported"),
        ((0.0, 0.01), "not supported"),
        ((-0.3, 0.0), "not supported"),
        ((-0.3, -0.3), "reversed"),
        ((0.1, 0.1), "undecided"),
    ],
)
def test_verdicts(means, expected):
    assert verdict(claim(**{f"case{k}": planted(mean) for k, mean in enumerate(means)})) == [expected]


@pytest.mark.parametrize(
    ("changed", "means", "expected"),
    [
        ({"combine": "any"}, (0.3, 0.0), "supported"),
        ({"combine": "any"}, (0.0, 0.0), "not supported"),
        ({"cases": ("case1",)}, (0.3, 0.0), "not supported"),
        ({"cases": ("case0", "elsewhere")}, (0.3, 0.0), "partly supported"),
        ({"learnt": Learnt(fewest_networks=99)}, (0.3, 0.3), "direction only"),
        ({"confidence": 0.1}, (0.12, 0.12), "supported"),
    ],
)
def test_verdicts_follow_from_the_record(changed, means, expected):
    criterion = effect("an effect", 0.1, **changed)
    assert verdict(claim(criterion=criterion, **{f"case{k}": planted(m) for k, m in enumerate(means)})) == [expected]


def test_tests_that_are_not_corrected_cost_nothing_and_pay_nothing():
    alone = effect("an effect", 0.1, correction="none")
    others = [claim(f"C{k}", a=planted(0.1)) for k in range(2, 80)]
    assert verdict(claim("C1", criterion=alone, a=planted(0.145, 0.12)), *others)[0] == "supported"


def test_networks_that_did_not_learn_do_not_count():
    sample = planted(0.3)
    sample.values[40:] = -5.0
    counted = Sample(sample.values, np.arange(NETWORKS) < 40, sample.trained)
    (judgement,) = judge([claim(a=counted)], STUDIES)
    assert judgement.verdict == "supported"
    assert (judgement.tests[0].learnt, judgement.tests[0].trained) == (40, 48)
    assert network_count(judgement) == "40/48"


def test_too_few_that_learnt_decide_nothing():
    assert verdict(claim(a=planted(0.3, learnt=36))) == ["supported"]
    assert verdict(claim(a=planted(0.3, learnt=35))) == ["not decidable"]
    assert verdict(claim(a=planted(0.3, learnt=0))) == ["not decidable"]


def test_each_arm_that_is_compared_has_a_share_of_its_own():
    both = planted(0.3, learnt=30)  # pairs of which 30 learnt on both sides, each side with 38 of 48
    assert verdict(claim(a=both)) == ["not decidable"]
    assert verdict(claim(a=replace(both, share_learnt=38 / 48))) == ["supported"]
    assert verdict(claim(a=replace(planted(0.3), share_learnt=0.7))) == ["not decidable"]


def test_networks_without_a_number_count_as_missing():
    sample = planted(0.3)
    sample.values[:12] = np.nan
    (judgement,) = judge([claim(a=sample)], STUDIES)
    assert (judgement.verdict, judgement.networks) == ("supported", 36)
    sample.values[:13] = np.nan
    assert verdict(claim(a=sample)) == ["not decidable"]


def test_a_statement_without_a_case_is_not_passed_over():
    (judgement,) = judge([claim()], STUDIES)
    assert [test.outcome for test in judgement.tests] == ["not measured"]
    assert judgement.verdict == "not decidable"


def test_few_networks_give_a_direction_and_show_the_reference():
    (judgement,) = judge([claim(a=planted(0.3, networks=7), b=planted(-0.3, networks=7))], STUDIES)
    assert judgement.verdict == "direction only"
    assert [test.outcome for test in judgement.tests] == ["as claimed", "opposite"]
    assert verdict_text(replace(judgement, reference="supported")) == "direction: as claimed in 1 of 2 tests"
    assert DIRECTION in explained(judgement)
    assert "supported" not in verdict_text(judgement)
    assert verdict(claim(a=planted(0.3, networks=8))) == ["supported"]


def test_tests_of_all_claims_share_one_error_rate():
    weak = claim("C1", a=planted(0.145, 0.12))
    alone, together = verdict(weak)[0], verdict(weak, *(claim(f"C{k}", a=planted(0.1)) for k in range(2, 80)))[0]
    assert (alone, together) == ("supported", "undecided")


def test_exploratory_claims_have_no_verdict_and_cost_nothing():
    weak = claim("C1", a=planted(0.145, 0.12))
    many = claim("C2", exploratory=True, **{f"case{k}": planted(0.1) for k in range(80)})
    assert verdict(weak, many) == ["supported", "exploratory"]


def test_alternatives_are_compared_with_the_first_case():
    others = {"other stage": planted(0.3), "other measure": planted(0.0)}
    (judgement,) = judge([claim(alternatives=others, bump=planted(0.3), rate=planted(0.0))], STUDIES)
    assert judgement.verdict == "partly supported"
    assert [test.case for test in judgement.differing()] == ["other measure"]
    assert robustness(judgement) == "agree 1 of 2 (not supported: other measure)"


def test_a_direction_agrees_with_the_outcome_on_its_side():
    few = {"few": planted(0.3, networks=7), "few others": planted(-0.3, networks=7), "none": planted(0.3, learnt=9)}
    for first, differing in ((0.3, ["few others"]), (-0.3, ["few"]), (0.0, ["few"])):
        (judgement,) = judge([claim(alternatives=few, a=planted(first))], STUDIES)
        assert [test.case for test in judgement.differing()] == differing
        assert robustness(judgement).startswith("agree 1 of 2")


def test_alternatives_are_judged_at_the_level_of_the_first_case():
    weak, others = planted(0.145, 0.12), [claim(f"C{k}", a=planted(0.1)) for k in range(2, 80)]
    judgement = judge([claim(alternatives={"the same": weak}, a=weak), *others], STUDIES)[0]
    assert judgement.alternatives[0].outcome == judgement.tests[0].outcome == "undecided"
    assert judgement.alternatives[0].level == judgement.tests[0].level > 0.99


def test_a_statement_says_what_was_found_on_how_many_networks_and_how_it_is_judged():
    (judgement,) = judge([claim(a=planted(0.3, 0, learnt=40))], STUDIES)
    (text,) = statements(judgement)
    for part in ("An effect (a)", "0.3 [0.3, 0.3]", "40 of 48 networks", "> δ = 0.1", "supported"):
        assert part in text
    assert explained(judgement)[1].startswith("Verdict: supported (1 test: 1 supported)")
    several = claim(criterion=effect("an effect", 0.1, combine="any"), a=planted(0.3, 0), b=planted(0.0, 0, learnt=9))
    (text,) = statements(judge([several], STUDIES)[0])
    for part in ("0 to 0.3", "9–48 of 48", "in at least one case", "supported in 1 of 2 (not decidable: b)"):
        assert part in text


def test_an_undecided_test_names_the_level_that_decided():
    weak, others = planted(0.145, 0.12), [claim(f"C{k}", a=planted(0.1)) for k in range(2, 80)]
    judgement = judge([claim(a=weak), *others], STUDIES)[0]
    assert judgement.tests[0].interval.low > 0.1
    assert f"undecided at {100 * judgement.tests[0].level:.4g} %" in statements(judgement)[0]


def test_an_alternative_with_a_quantity_of_its_own_is_shown_by_it():
    other = {"in seconds": replace(planted(0.3), measures="time to learn")}
    (judgement,) = judge([claim(alternatives=other, a=planted(0.3))], STUDIES)
    assert (judgement.tests[0].measured, judgement.alternatives[0].measured) == ("an effect", "time to learn")
    assert judgement.alternatives[0].statistic == "an effect", "the statement that it belongs to"
    rows = [row for row in claim_by_claim([judgement]).splitlines() if row.startswith("| alternative")]
    assert [("time to learn" in row, "an effect" in row) for row in rows] == [(True, False)]


def test_statements_of_a_claim_have_statistics_of_their_own():
    same = claim(a=planted(0.3)).statements * 2
    with pytest.raises(InvalidValue, match="the only one of its claim"):
        replace(claim(a=planted(0.3)), statements=same)


def test_controls_do_not_change_the_verdict():
    controls = {"composing": planted(0.0), "untrained": planted(0.3)}
    (judgement,) = judge([claim(controls=controls, a=planted(0.3))], STUDIES)
    assert judgement.verdict == "supported"
    assert robustness(judgement) == "controls 1 of 2"


def test_a_claim_without_its_datasets_is_not_judged():
    assert judge([claim(a=planted(0.3))], {}) == []


def test_a_changed_criterion_is_marked():
    before = claim(a=planted(0.3))
    registered = {record_digest(record) for record in before.records({})}
    (judgement,) = judge([before], STUDIES, registered)
    assert judgement.timing == "before the data"
    after = claim(criterion=effect("an effect", 0.05), a=planted(0.3))
    (judgement,) = judge([after], STUDIES, registered)
    assert judgement.timing == "after the data"
    assert "(after the data)" in verdict_text(judgement)
    assert judgement.record()["tests"][0]["timing"] == "after the data"
    (judgement,) = judge([after], STUDIES, None)
    assert judgement.timing == "not registered"


def test_a_changed_alternative_is_marked_and_the_verdict_is_not():
    before = claim(a=planted(0.3), alternatives={"other": planted(0.3)})
    registered = {record_digest(record) for record in before.records({}) if record["part"] == "tests"}
    (judgement,) = judge([before], STUDIES, registered)
    assert judgement.timing == "before the data"
    assert [test.timing for test in judgement.alternatives] == ["after the data"]


def test_records_are_plain_data():
    (judgement,) = judge([claim(a=planted(0.3, networks=1))], STUDIES)
    record = json.loads(json.dumps(judgement.record(), allow_nan=False))
    assert record["tests"][0]["interval"]["low"] is None
    assert record["verdict"] == "direction only"
