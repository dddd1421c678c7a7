"""On a cluster, a worker or driver that is killed, or meets an error, at any storage call loses and leaves nothing.

A case takes a second or two, so of the calls that are alike (of one kind, at one place up to keys and numbers) the
first one is tried: all kinds of call at all places, a third of the calls. The short form tries a few of these.
"""

import pytest

from tests.campaigns.cluster_scene import ENDS, ROLES, ClusterScene
from tests.campaigns.faults import ERRORS, KILLS, own_part, sampled
from tests.campaigns.scenes import grouped, is_index

pytest.importorskip("distributed")
KILLED = {"worker": 1, "driver": 1}
FAILED = {"worker": 1, "driver": 1}


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    started = ClusterScene(tmp_path_factory.mktemp("cluster").resolve())
    yield started
    started.close()


def cases_of(scene, role, form, faults, numbers):
    """Cases `(call, fault)`, deterministic: all calls that are unlike, or some of them."""
    recorded = scene.whole[1][role]
    if form == "sample":
        return sampled(recorded, faults, numbers[role])
    turns = [faults[turn:] + faults[:turn] for turn in (range(len(faults)) if faults is KILLS else [0])]
    return own_part([case for faults in turns for case in sampled(recorded, faults, len(recorded))])


@pytest.mark.parametrize("role", ROLES)
def test_killed_at_a_storage_call_the_sweep_ends_as_if_nothing_had_been(scene, role, form):
    failures = [
        (f"{role}, {call}, {fault.name}", text)
        for call, fault in cases_of(scene, role, form, KILLS, KILLED)
        for text in killed(scene, role, call, fault)
    ]
    assert not failures, grouped(failures)


def killed(scene, role, call, fault):
    """What is wrong once a worker was killed and replaced, or a driver was killed and started again."""
    line = scene.met(role, call.number, fault)
    if not scene.struck(role):
        return ["it was not killed"]
    if role == "worker" and line != "finished":
        return [f"the driver ended: {line}"]
    return scene.finished()


@pytest.mark.parametrize("role", ROLES)
def test_an_error_of_a_storage_call_is_one_line_and_gone_with_its_cause(scene, role, form):
    failures = [
        (f"{role}, {call}, {fault.name}", text)
        for call, fault in cases_of(scene, role, form, ERRORS, FAILED)
        for text in [*failed(scene, role, call, fault), *scene.finished()]
    ]
    assert not failures, grouped(failures)


def failed(scene, role, call, fault):
    """What is wrong with how a sweep took an error."""
    line = scene.met(role, call.number, fault)
    if not scene.struck(role):
        return ["no call met the fault"]
    if not ENDS.fullmatch(line):
        return [f"the driver ended: {line}"]
    if line != "finished" and all(map(is_index, scene.struck(role))):
        return [f"stopped by the index: {line}"]
    return []
