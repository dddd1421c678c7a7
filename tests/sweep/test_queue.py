"""Which runs a worker gets, and who is blamed when it dies."""

import math

import pytest

from recombine.sweep.cluster_workers import MOST_RUNS, Sizes, is_elsewhere, listed_workers
from recombine.sweep.queue import FIRST_DELAY, LONGEST_DELAY, NOT_BEGUN, STRIKES, Queue

HERE, THERE = ("tcp://a:1", "a"), ("tcp://b:1", "b")


def queue(programs, progress=lambda key: None):
    return Queue({key: program for program, keys in programs.items() for key in keys}, progress)


def take(waiting, most=math.inf, **where):
    return waiting.take(lambda program, count: min(most, count), **where)


def test_tasks_are_of_one_program_and_in_order():
    waiting = queue({"p": "abc", "q": "de"})
    assert [take(waiting, 2), take(waiting, 2), take(waiting), take(waiting)] == [["a", "b"], ["c"], ["d", "e"], []]


def test_a_worker_gets_only_what_fits_it():
    waiting = queue({"p": "a", "q": "b"})
    assert take(waiting, fits=lambda program: program == "q") == ["b"]
    assert take(waiting, fits=lambda program: program == "q") == []
    assert len(waiting) == 1


def test_a_group_that_died_is_halved_until_one_run_is_to_blame():
    waiting, deaths, done = queue({"p": "abcdefgh"}), 0, []
    while keys := take(waiting):
        if "f" in keys:
            deaths += 1
            waiting.blame(keys, "died", HERE)
        else:
            done += keys
            for key in keys:
                waiting.drop(key)
    assert sorted(done) == list("abcdegh")
    assert waiting.failed == {"f": "died"}
    assert deaths == math.log2(8) + STRIKES


def test_a_single_run_is_put_aside_after_its_strikes():
    waiting = queue({"p": "ab"})
    for strike in range(1, STRIKES + 1):
        key = "a"
        waiting.ready["p"].pop(key)
        assert waiting.blame([key], f"reason {strike}", HERE) == (["a"] if strike == STRIKES else [])
    assert waiting.failed == {"a": f"reason {STRIKES}"}
    assert take(waiting) == ["b"]


def test_a_run_that_makes_progress_is_never_put_aside():
    checkpoints = iter(range(1000))
    waiting = queue({"p": "a"}, lambda key: next(checkpoints))
    for _ in range(10 * STRIKES):
        assert waiting.blame(take(waiting), "died", HERE) == []


def test_what_had_not_begun_is_hardly_blamed():
    waiting, deaths = queue({"p": "a"}), 0
    while keys := take(waiting):
        waiting.blame(keys, "died", HERE, begun=False)
        deaths += 1
    assert deaths == STRIKES / NOT_BEGUN


def test_a_group_that_had_not_begun_stays_together_for_a_while():
    waiting = queue({"p": "abcd"})
    waiting.blame(take(waiting), "died", HERE, begun=False)
    assert take(waiting) == list("abcd")


def test_it_is_tried_elsewhere_if_there_is_an_elsewhere():
    waiting = queue({"p": "a"})
    waiting.blame(take(waiting, place=HERE), "died", HERE)
    assert take(waiting, place=HERE, elsewhere=lambda avoided: True) == []
    assert take(waiting, place=THERE, elsewhere=lambda avoided: True) == ["a"]
    waiting.blame(["a"], "died", THERE)
    assert take(waiting, place=HERE, elsewhere=lambda avoided: False) == ["a"]


def test_suspects_do_not_hold_up_the_others():
    waiting = queue({"p": "abc"})
    waiting.blame(take(waiting, 1), "died", HERE)
    assert take(waiting) == ["b", "c", "a"]
    waiting = queue({"p": "abcde"})
    waiting.blame(take(waiting, 2), "died", HERE)
    assert [take(waiting), take(waiting), take(waiting)] == [["c", "d", "e"], ["a"], ["b"]]


def test_innocents_come_first_again():
    waiting = queue({"p": "abc"})
    first = take(waiting, 2)
    waiting.put_back(first)
    assert take(waiting) == ["a", "b", "c"]


def test_what_others_train_is_looked_at_again_later_and_later():
    waiting, now = queue({"p": "a"}), 0.0
    delays = []
    for _ in range(9):
        waiting.put_off(take(waiting), now)
        delay = FIRST_DELAY
        while not waiting.wake(now + delay):
            delay *= 2
        delays.append(delay)
        now += delay
    assert delays[:3] == [FIRST_DELAY, 2 * FIRST_DELAY, 4 * FIRST_DELAY]
    assert delays[-1] == LONGEST_DELAY


@pytest.mark.parametrize("state", ["ready", "delayed", "taken"])
def test_a_finished_run_is_forgotten_wherever_it_is(state):
    waiting = queue({"p": "a"})
    if state != "ready":
        take(waiting)
    if state == "delayed":
        waiting.put_off(["a"], 0.0)
    waiting.drop("a")
    assert (len(waiting), waiting.wake(1e9), take(waiting)) == (0, [], [])


def test_sizes_of_tasks():
    sizes = Sizes(128)
    assert sizes.of("p", 1000, gpu=True, workers=2) == 128
    assert sizes.of("p", 100, gpu=True, workers=3) == 34
    assert sizes.of("p", 1000, gpu=False, workers=2) == 1  # nothing is known of their length
    sizes.note("p", 2, 1.0)
    assert sizes.of("p", 1000, gpu=False, workers=2) == 4
    assert sizes.of("p", 10, gpu=False, workers=2) == 1  # for all workers to end at about the same time
    sizes.note("p", 10, 0.01)
    assert sizes.of("p", 10_000, gpu=False, workers=2) == MOST_RUNS
    sizes.note("p", 1, 60.0)
    assert sizes.of("p", 1000, gpu=False, workers=2) == 1


def test_workers_of_a_scheduler():
    entry = {"name": "w0", "host": "a", "local_directory": "/tmp/x", "status": "running", "resources": {"GPU": 1}}
    workers = listed_workers({"workers": {"tcp://a:1": entry, "tcp://b:1": {"host": "b"}}})
    assert [(worker.name, worker.gpus, worker.place) for worker in workers.values()] == [
        ("w0", 1.0, HERE), ("tcp://b:1", 0.0, THERE),
    ]  # fmt: skip
    assert is_elsewhere(workers.values(), {"a"})
    assert not is_elsewhere(workers.values(), {"a", "tcp://b:1"})
    workers["tcp://b:1"].unusable = "no torch there"
    assert not is_elsewhere(workers.values(), {"a"})
