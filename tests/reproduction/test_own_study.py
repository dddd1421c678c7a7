"""Studies of one's own: planted scores with known verdicts, and what their criteria and Datasets depend on."""

import numpy as np
import pytest
import xarray

import recombine as rc
from recombine.errors import InvalidValue
from recombine.reproduction.claims import judge
from recombine.reproduction.criteria import Learnt, record_digest
from recombine.reproduction.own_study import OwnClaim, own_paper
from recombine.reproduction.reproduce import reproduce

SEEDS = 16
ARMS = ("composes", "fails", "fails too")
TASK = rc.BumpTask(size=6, holdout="center:2:4", training="each")
SPECS = {
    arm: rc.RunSpec(task=TASK, decoder=rc.MLP(width=width, depth=1), recipe=rc.Recipe(steps=2))
    for width, arm in enumerate(ARMS, 4)
}
LEVEL = {"text": "It composes", "measure": "ood_accuracy", "arms": "composes", "above": 0.9}
GAIN = {"text": "It helps", "measure": "ood_accuracy", "arms": "composes", "less": "fails", "effect": 0.3}


def planted(kept=1.0, **changed):
    """Scores of an arm that composes and two that do not, all of which learnt, with a little noise."""
    noise = 0.02 * np.random.default_rng(0).uniform(-1, 1, (3, SEEDS))
    held_out = np.array([[0.97], [0.4], [0.45]]) + noise
    error = np.full((3, SEEDS), 0.01)
    stages = np.stack([error, held_out, held_out - 0.2], axis=-1)  # input, hidden stage, output
    data = xarray.Dataset(
        {name: (("arm", "seed"), values) for name, values in
         {"ood_accuracy": held_out, "id_accuracy": 0 * error + kept, "id_over_blank": error, "trained": 0 * error + 1}
         .items()} | {"factorization": (("arm", "seed", "stage"), stages)},
        {"arm": list(ARMS), "seed": np.arange(SEEDS)},
    )  # fmt: skip
    return data.assign(changed)


def verdict(claim, data, **options):
    paper = own_paper("mine", SPECS, [OwnClaim(**claim)], seeds=SEEDS, **options)
    (judgement,) = judge(paper.claims.values(), {"mine": data})
    return judgement.described


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        (LEVEL, "yes"),
        (GAIN, "yes"),
        ({**LEVEL, "arms": "fails"}, "no"),
        ({**GAIN, "arms": "fails", "less": "composes"}, "reversed"),
        ({**GAIN, "arms": "fails too"}, "no"),
        ({**LEVEL, "arms": ARMS}, "partly"),
        ({**LEVEL, "arms": ARMS, "combine": "any"}, "yes"),
        ({**GAIN, "effect": None, "between": [0.5, 0.6]}, "yes"),
        ({**LEVEL, "above": None, "below": 0.9}, "no"),
        ({**GAIN, "measure": "factorization:output"}, "yes"),
        ({**LEVEL, "measure": "factorization:fall", "above": 0.1}, "yes"),
    ],
)
def test_planted_scores_get_the_right_verdict(claim, expected):
    assert verdict(claim, planted()) == expected


def test_permuted_arms_give_no_verdict_for_them():
    data = planted()
    values = np.random.default_rng(1).permuted(data["ood_accuracy"].values, axis=0)
    permuted = data.assign(ood_accuracy=(("arm", "seed"), values))
    assert {verdict(claim, permuted) for claim in (LEVEL, GAIN)} <= {"no", "open"}


def test_networks_that_did_not_learn_do_not_count():
    some = np.where(np.arange(SEEDS) < 13, 1.0, 0.5)
    few = np.where(np.arange(SEEDS) < 11, 1.0, 0.5)
    data = planted()
    for kept, expected in ((some, "yes"), (few, "not decidable"), (np.nan, "yes")):
        assert verdict(GAIN, data.assign(id_accuracy=data["id_accuracy"] * kept)) == expected
    lenient = Learnt(smallest_accuracy=0.4)
    assert verdict(GAIN, data.assign(id_accuracy=data["id_accuracy"] * few), learnt=lenient) == "yes"


def test_the_table_counts_perfect_networks():
    data = planted()
    data["ood_accuracy"][0, :5] = 1.0
    paper = own_paper("mine", SPECS, [OwnClaim(**LEVEL)], seeds=SEEDS)
    table = paper.figures["ood_accuracy"].table
    assert [row[-1].partition("; ")[2] for row in table(data)[1:]] == [f"{n} of 16 networks perfect" for n in (5, 0, 0)]


def test_the_criterion_depends_on_the_rule_and_on_the_arms_specs():
    def digest(specs=SPECS, learnt=Learnt(), **changed):  # noqa: B008
        paper = own_paper("mine", specs, [OwnClaim(**{**GAIN, **changed})], seeds=2, learnt=learnt)
        return record_digest(paper.claims["S1"].records(paper.versions)[0])

    longer = {**SPECS, "fails": SPECS["fails"].replace(recipe=rc.Recipe(steps=3))}
    others = [digest(longer), digest(learnt=Learnt(largest_error=0.2)), digest(effect=0.2), digest(arms="fails too")]
    assert len({digest(), *others}) == 5
    assert digest() == digest()


def test_other_names_for_the_same_runs_are_measured_again(tmp_path):
    for first, second in (("composes", "fails"), ("fails", "composes")):
        specs = {first: SPECS["composes"], second: SPECS["fails"]}
        paper = own_paper("mine", specs, [OwnClaim(**LEVEL)], seeds=2)
        preset = paper.presets["full"].changed(["seeds=1"])
        results = reproduce(
            paper.studies.values(), preset, tmp_path / "runs", tmp_path / "out", device="cpu", paper=paper
        )
        assert results.dataset("mine")["arm"].values.tolist() == [first, second]
    assert len(list((tmp_path / "runs" / "runs").iterdir())) == 2


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"arms": "nobody"}, "arms must be one of composes, fails, fails too, got 'nobody'"),
        ({"less": "nobody"}, "arms must be one of composes"),
        ({"less": None}, "less must be the arm that the effect is compared with"),
        ({"below": 0.5}, "criterion must be one of effect, above, below and between, got 'effect, below'"),
        ({"effect": None}, "criterion must be one of"),
        ({"measure": "ood_acuracy"}, "measure must be ood_accuracy"),
        ({"measure": "factorization"}, "measure must be factorization and where it is read: factorization:PLACE"),
        ({"measure": "factorization:top"}, "measure must be factorization and where"),
        ({"arms": []}, "arms must be a list of at least 1"),
    ],
)
def test_a_mistake_in_a_claim_is_one_line(changed, message):
    with pytest.raises(InvalidValue) as caught:
        own_paper("mine", SPECS, [OwnClaim(**{**GAIN, **changed})], seeds=2)
    assert str(caught.value).startswith(message)
