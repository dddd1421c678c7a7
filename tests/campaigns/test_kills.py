"""Killed at any storage call, `train` and `reproduce` go on to the same bits and leave nothing behind."""

import pytest

from tests.campaigns.faults import KILLS, every, sampled
from tests.campaigns.scenes import grouped, struck, unacceptable

SAMPLES = {"training": 8, "processes": 3, "reproduction": 1}


@pytest.fixture(params=list(SAMPLES))
def scene(request):
    return request.getfixturevalue(request.param), SAMPLES[request.param]


def test_killed_at_a_storage_call_the_next_command_ends_as_if_nothing_had_been(scene, form):
    scene, number = scene
    recorded = scene.whole[2]
    cases, scene.unmet = every(recorded, KILLS) if form == "all" else sampled(recorded, KILLS, number), 0
    failures = [(f"{call}, {fault.name}", text) for call, fault in cases for text in problems(scene, call, fault)]
    assert not failures, grouped(failures)
    assert scene.unmet <= scene.may_be_unmet(len(cases))


def problems(scene, call, fault):
    """What is wrong once a command was killed and given again."""
    (*_, outcome) = scene.met(call.number, fault)
    is_met = bool(struck(scene))
    scene.unmet += not is_met
    if is_met and not scene.is_killed(outcome):
        return ["it was not killed"]
    wrong = []
    for words, outcome in zip(scene.readers(), scene.zygote.run(scene.readers()), strict=True):
        if text := unacceptable(outcome) or damage(outcome):
            wrong.append(f"{' '.join(words[:3])} after it: {text}")
    return [*wrong, *scene.finished()]


def damage(outcome):
    """A kill damages nothing."""
    return outcome["out"].splitlines()[0] if outcome["code"] == 1 else None


def test_the_shim_sees_every_kind_of_call(training, reproduction):
    seen = {call.kind for scene in (training, reproduction) for call in scene.whole[2]}
    wanted = {"create", "open", "list", "read", "write", "sync", "rename", "unlink", "mkdir", "lock", "close"}
    assert wanted <= seen
    names = {call.path.rpartition("/")[2] for call in training.whole[2] if call.kind in ("write", "create")}
    assert any(name.startswith("index.tsv") for name in names)
    written = {call.path.rpartition(".")[2] for call in reproduction.whole[2] if call.kind == "rename"}
    assert {"nc", "json", "html"} <= written
