"""Verdicts from numbers: known answers."""

import json
from dataclasses import replace

import numpy as np
import pytest

from recombine.errors import InvalidValue
from recombine.reproduction.claims import Claim, Sample, Statement, judge
from recombine.reproduction.criteria import Fit, Learnt, effect, record_digest
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
    return Sample(values, (learnt_by(networks if learnt is None else learnt, networks),))


def learnt_by(learnt, networks=NETWORKS):
    """The fit of networks of which the first ones learnt."""
    return Fit.known(np.arange(networks) < learnt)


def claim(name="C1", criterion=None, alternatives=None, controls=None, exploratory=False, **cases):
    criterion = criterion or effect("an effect", 0.1)
    samples = {
        kind: (lambda data, own=own, **parameters: own or {})
        for kind, own in (("cases", cases), ("alternatives", alternatives), ("controls", controls))
    }
    return Claim(name, "It is so", "§1", (Statement(criterion, **samples),), ("study",), exploratory=exploratory)


def verdict(*claims):
    return [judgement.described for judgement in judge(claims, STUDIES)]


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ((0.3, 0.4), "yes"),
        ((0.3, 0.0), "partly"),
        ((0.3, 0.1), "partly"),
        ((0.0, 0.01), "no"),
        ((-0.3, 0.0), "no"),
        ((-0.3, -0.3), "reversed"),
        ((0.1, 0.1), "open"),
    ],
)
def test_verdicts(means, expected):
    assert verdict(claim(**{f"case{k}": planted(mean) for k, mean in enumerate(means)})) == [expected]


@pytest.mark.parametrize(
    ("changed", "means", "expected"),
    [
        ({"combine": "any"}, (0.3, 0.0), "yes"),
        ({"combine": "any"}, (0.0, 0.0), "no"),
        ({"cases": ("case1",)}, (0.3, 0.0), "no"),
        ({"cases": ("case0", "elsewhere")}, (0.3, 0.0), "partly"),
        ({"learnt": Learnt(fewest_networks=99)}, (0.3, 0.3), "direction only"),
        ({"confidence": 0.1}, (0.12, 0.12), "yes"),
    ],
)
def test_verdicts_follow_from_the_record(changed, means, expected):
    criterion = effect("an effect", 0.1, **changed)
    assert verdict(claim(criterion=criterion, **{f"case{k}": planted(m) for k, m in enumerate(means)})) == [expected]


def test_tests_that_are_not_corrected_cost_nothing_and_pay_nothing():
    alone = effect("an effect", 0.1, correction="none")
    others = [claim(f"C{k}", a=planted(0.1)) for k in range(2, 80)]
    assert verdict(claim("C1", criterion=alone, a=planted(0.145, 0.12)), *others)[0] == "yes"


def test_networks_that_did_not_learn_do_not_count():
    sample = planted(0.3)
    sample.values[40:] = -5.0
    counted = Sample(sample.values, (learnt_by(40),))
    (judgement,) = judge([claim(a=counted)], STUDIES)
    assert judgement.described == "yes"
    assert (judgement.tests[0].learnt, judgement.tests[0].trained) == (40, 48)
    assert network_count(judgement) == "40/48"


def test_too_few_that_learnt_decide_nothing():
    assert verdict(claim(a=planted(0.3, learnt=36))) == ["yes"]
    assert verdict(claim(a=planted(0.3, learnt=35))) == ["not decidable"]
    assert verdict(claim(a=planted(0.3, learnt=0))) == ["not decidable"]


def test_each_arm_that_is_compared_has_a_share_of_its_own():
    numbers, values = np.arange(NETWORKS), planted(0.3).values
    both = (Fit.known(numbers < 38), Fit.known(numbers >= 10))  # 38 of 48 on each side, 28 pairs on both
    assert verdict(claim(a=Sample(values, both))) == ["yes"]
    assert verdict(claim(a=Sample(values, (Fit.known(numbers < 28),)))) == ["not decidable"]
    assert verdict(claim(a=Sample(values, (Fit.known(numbers < 48), Fit.known(numbers < 35))))) == ["not decidable"]


def test_networks_without_a_number_count_as_missing():
    sample = planted(0.3)
    sample.values[:12] = np.nan
    (judgement,) = judge([claim(a=sample)], STUDIES)
    assert (judgement.described, judgement.networks) == ("yes", 36)
    sample.values[:13] = np.nan
    assert verdict(claim(a=sample)) == ["not decidable"]


def test_a_statement_without_a_case_is_not_passed_over():
    (judgement,) = judge([claim()], STUDIES)
    assert [test.outcome for test in judgement.tests] == ["not measured"]
    assert judgement.described == "not measured"


def test_few_networks_give_a_direction_and_show_the_reference():
    (judgement,) = judge([claim(a=planted(0.3, networks=7), b=planted(-0.3, networks=7))], STUDIES)
    assert judgement.described == "direction only"
    assert [test.outcome for test in judgement.tests] == ["as claimed", "opposite"]
    assert verdict_text(replace(judgement, reference="described")) == "direction: as claimed in 1 of 2 tests"
    assert DIRECTION in explained(judgement)
    assert judgement.headline == ""
    assert verdict(claim(a=planted(0.3, networks=8))) == ["yes"]


def test_tests_of_all_claims_share_one_error_rate():
    weak = claim("C1", a=planted(0.145, 0.12))
    alone, together = verdict(weak)[0], verdict(weak, *(claim(f"C{k}", a=planted(0.1)) for k in range(2, 80)))[0]
    assert (alone, together) == ("yes", "open")


def test_exploratory_claims_have_no_verdict_and_cost_nothing():
    weak = claim("C1", a=planted(0.145, 0.12))
    many = claim("C2", exploratory=True, **{f"case{k}": planted(0.1) for k in range(80)})
    assert verdict(weak, many) == ["yes", "exploratory"]


def test_alternatives_are_counted_by_outcome_and_named_unless_yes():
    others = {"other stage": planted(0.3), "other measure": planted(0.0), "other code": planted(-0.3),
              "other depth": planted(0.1), "few": planted(0.3, networks=7), "none": planted(0.3, learnt=9)}  # fmt: skip
    (judgement,) = judge([claim(alternatives=others, bump=planted(0.3), rate=planted(0.0))], STUDIES)
    assert judgement.described == "partly"
    text = robustness(judgement)
    assert text.startswith("alternatives: 1 yes, 2 no, 1 open, 1 as claimed (")
    assert ["other stage" in text, "other measure" in text, "none" in text] == [False, True, False]


def test_alternatives_are_judged_at_the_level_of_the_first_case():
    weak, others = planted(0.145, 0.12), [claim(f"C{k}", a=planted(0.1)) for k in range(2, 80)]
    judgement = judge([claim(alternatives={"the same": weak}, a=weak), *others], STUDIES)[0]
    assert judgement.alternatives[0].outcome == judgement.tests[0].outcome == "open"
    assert judgement.alternatives[0].level == judgement.tests[0].level > 0.99


def test_a_statement_says_what_was_found_on_how_many_networks_and_how_it_is_judged():
    (judgement,) = judge([claim(a=planted(0.3, 0, learnt=40))], STUDIES)
    (text,) = statements(judgement)
    for part in ("An effect (a)", "0.3 [0.3, 0.3]", "40 of 48 networks", "> δ = 0.1", "yes"):
        assert part in text
    assert explained(judgement)[1].startswith("Verdict: described (1 test: 1 yes)")
    several = claim(criterion=effect("an effect", 0.1, combine="any"), a=planted(0.3, 0), b=planted(0.0, 0, learnt=9))
    (text,) = statements(judge([several], STUDIES)[0])
    for part in ("0 to 0.3", "9–48 of 48", "in at least one case", "yes in 1 of 2 (not decidable: b)"):
        assert part in text


def test_an_undecided_test_names_the_level_that_decided():
    weak, others = planted(0.145, 0.12), [claim(f"C{k}", a=planted(0.1)) for k in range(2, 80)]
    judgement = judge([claim(a=weak), *others], STUDIES)[0]
    assert judgement.tests[0].interval.low > 0.1
    assert f"open at {100 * judgement.tests[0].level:.4g} %" in statements(judgement)[0]


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
    assert judgement.described == "yes"
    assert robustness(judgement) == "controls: 1 yes, 1 no (no: composing)"


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
    assert record["described"] == "direction only"


def test_two_words_are_judged_apart():
    """A probe that falls as much in composing networks: described, not specific."""
    level, fall = effect("a fall", 0.1), effect("a fall, failing less composing", 0.1, word="specific")
    statements = (
        Statement(level, lambda data: {"a": planted(0.3)}),
        Statement(fall, lambda data: {"a": planted(0.0)}),
    )
    (judgement,) = judge([replace(claim(), statements=statements)], STUDIES)
    assert (judgement.described, judgement.specific, judgement.headline) == ("yes", "no", "described, not specific")
    assert [test.word for test in judgement.tests] == ["described", "specific"]


@pytest.mark.parametrize(
    ("means", "expected"),
    [((0.3, 0.4), "yes"), ((0.3, 0.0), "no"), ((0.3, 0.1), "open"), ((-0.3, -0.3), "reversed"), ((0.3, -0.3), "no")],
)
def test_a_contrast_needs_all_its_halves(means, expected):
    criterion = effect("an effect", 0.1, combine="contrast")
    assert verdict(claim(criterion=criterion, **{f"half{k}": planted(m) for k, m in enumerate(means)})) == [expected]


def test_a_verdict_that_changes_with_the_plain_mean_is_open():
    values = planted(0.3).values
    values[:8] = -1.5  # few enough to be trimmed; the plain mean is near 0
    sample = Sample(values, (learnt_by(NETWORKS),))
    (judgement,) = judge([claim(a=sample)], STUDIES)
    (test,) = judgement.tests
    assert (judgement.described, test.interval.low > 0.1, test.plain.value < 0.1) == ("open", True, True)
    assert verdict(claim(criterion=effect("an effect", 0.1, both_means=False), a=sample)) == ["yes"]


def test_parameters_of_the_record_reach_the_measure():
    def cases(data, threshold):
        return {"a": planted(threshold)}

    for threshold, expected in ((0.3, "yes"), (0.0, "no")):
        criterion = effect("an effect", 0.1, parameters={"threshold": threshold})
        judged = replace(claim(), statements=(Statement(criterion, cases),))
        assert verdict(judged) == [expected]


def test_what_counts_as_learnt_is_part_of_the_record():
    error = np.where(np.arange(NETWORKS) < 30, 0.05, 0.15)
    fit = Fit(error, np.full(NETWORKS, 0.97), np.ones(NETWORKS, dtype=bool))
    sample = Sample(planted(0.3).values, (fit,))
    rules = {"not decidable": (Learnt(), Learnt(largest_error=0.2, smallest_accuracy=0.98)),
             "yes": (Learnt(largest_error=0.2), Learnt(smallest_share=0.5))}  # fmt: skip
    for expected, records in rules.items():
        for rule in records:
            assert verdict(claim(criterion=effect("an effect", 0.1, learnt=rule), a=sample)) == [expected]


def test_permuted_labels_give_no_verdict():
    """With arms drawn from one population, hardly any of many claims is called described, and none is without δ."""
    generator = np.random.default_rng(3)
    claims = []
    for k in range(200):
        own, other = generator.permutation(generator.lognormal(size=2 * NETWORKS)).reshape(2, NETWORKS)
        sample = Sample(own - other, (learnt_by(NETWORKS), learnt_by(NETWORKS)))
        claims.append(claim(f"C{k}", criterion=effect("an effect", 0.1, correction="none"), a=sample))
    assert verdict(*claims).count("yes") <= 0.05 * len(claims)
