"""Whatever error a storage call ends with, a command succeeds or says one line, and the next one ends as it must."""

import errno

import pytest

from tests.campaigns.faults import ANSWERS, CHANGING, ERRORS, FAIL_ON, GROWING, NONE, Call, Fault, every, sampled
from tests.campaigns.scenes import failure, grouped, is_index, struck, unacceptable

SAMPLES = {"training": 5, "processes": 2, "reproduction": 1, "looking": 2}
DISKS = (
    Fault("a read-only disk", FAIL_ON, errno.EROFS, CHANGING),
    Fault("a full disk", FAIL_ON, errno.ENOSPC, GROWING),
)
NO_LOCKS = [Fault("no locks", FAIL_ON, number, ("lock",)) for number in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)]


@pytest.fixture(params=["training", "processes", "reproduction"])
def scene(request):
    return request.getfixturevalue(request.param), SAMPLES[request.param]


def cases_of(scene, form, number):
    recorded = scene.whole[2]
    return every(recorded, ERRORS) if form == "all" else sampled(recorded, ERRORS, number)


def test_an_error_of_a_storage_call_is_one_line_and_gone_with_its_cause(scene, form):
    scene, number = scene
    cases, scene.unmet = cases_of(scene, form, number), 0
    failures = [
        (f"{call}, {fault.name}", text)
        for call, fault in cases
        for text in [*met(scene, call, fault), *scene.finished()]
    ]
    assert not failures, grouped(failures)
    assert scene.unmet <= scene.may_be_unmet(len(cases))


def met(scene, call, fault):
    """What is wrong with how a command took an error."""
    outcome, *rest = scene.met(call.number, fault, [scene.contents()])
    hit = struck(scene)
    scene.unmet += not hit
    if text := unacceptable(outcome):
        return [text]
    if outcome["code"] == 0:
        return [] if rest == [scene.whole[0]] else ["exit code 0 with other contents"]
    if all(map(is_index, hit)):
        return [f"stopped by the index: {failure(outcome)}"]
    return [] if outcome["code"] == 2 else [str(failure(outcome))]


def test_a_command_that_looks_shows_the_same_or_one_line(looking, form):
    """Also where there are no locks at all; space and rights to write are not needed."""
    whole = looking.met(0, NONE)
    assert [looking.met(0, disk) for disk in DISKS] == [whole] * len(DISKS)
    locks = [(Call(0, "lock", "-", "any"), fault) for fault in NO_LOCKS[: 1 if form == "sample" else None]]
    failures = [
        (f"'{looking.command}', {call}, {fault.name}", text)
        for call, fault in [*cases_of(looking, form, SAMPLES["looking"]), *locks]
        for text in seen(looking, call, fault, whole)
    ]
    assert not failures, grouped(failures)


def seen(looking, call, fault, whole):
    """What is wrong with how a command that only looks took an error."""
    (outcome,) = looking.met(call.number, fault)
    if text := unacceptable(outcome):
        return [text]
    if outcome["code"] == 2 and not all(map(is_index, struck(looking))):
        return []
    return [] if outcome["out"] == whole[0]["out"] else [f"differs: {outcome}"]


@pytest.mark.parametrize(
    "number", [number for number, kinds in ANSWERS.items() if kinds != ("lock",)], ids=errno.errorcode.get
)  # the index takes no lock
def test_an_index_that_always_fails_does_not_stop_training(training, number):
    fault = Fault("index", FAIL_ON, number, ANSWERS[number], only="index.tsv")
    contents = training.whole[0]
    outcome, *rest = training.met(0, fault, [training.contents()])
    assert struck(training)
    assert failure(outcome) is None
    assert rest == [contents]
