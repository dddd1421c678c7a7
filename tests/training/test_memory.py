"""Members that do not fit are trained after the others, and to the same bits."""

import pytest
import torch

from recombine.errors import InvalidValue
from recombine.sweep import executors, train
from recombine.sweep.group import Group
from tests.small import small_spec

SPECS = [small_spec("mlp", seed=seed, steps=6) for seed in range(5)]


def full_above(members, monkeypatch, seen):
    """A device whose memory holds so many members."""

    def fit(group):
        seen.append(len(group.keys))
        if len(group.keys) > members:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        yield from original(group)

    original = Group.fit
    monkeypatch.setattr(Group, "fit", fit)


def test_a_chunk_that_does_not_fit_is_split(monkeypatch, tmp_path):
    expected = train(SPECS, tmp_path / "plain", device="cpu")
    seen = []
    full_above(1, monkeypatch, seen)
    found = train(SPECS, tmp_path / "split", device="cpu", members=5)
    assert seen == [5, 2, 1, 1, 1, 1, 1]
    for one, other in zip(expected, found, strict=True):
        assert one.scores == other.scores


def test_one_program_that_does_not_fit_leaves_others_as_they_are(monkeypatch, tmp_path):
    seen = []
    full_above(2, monkeypatch, seen)
    monkeypatch.setitem(executors.MEMBERS_TOGETHER, "cpu", 4)
    others = [small_spec("mlp", seed=seed, steps=6, batch=3) for seed in range(2)]
    train([*SPECS, *others], tmp_path, device="cpu")
    assert seen == [4, 2, 2, 1, 2]


def test_a_single_member_that_does_not_fit_is_an_error(monkeypatch, tmp_path):
    full_above(0, monkeypatch, [])
    with pytest.raises(torch.cuda.OutOfMemoryError):
        train(SPECS[:1], tmp_path, device="cpu")


def test_a_budget_needs_a_gpu(tmp_path):
    with pytest.raises(InvalidValue, match="memory"):
        train(SPECS, tmp_path, device="cpu", memory=1.0)
