"""The revision of the training code belongs to a run's key: old runs stay readable, and are not served for new ones."""

import re

import pytest

from recombine.keys import REVISION
from recombine.specs import RunSpec
from recombine.store import Store, summarize
from recombine.sweep import train
from tests.command import run
from tests.small import small_spec

SPEC = small_spec("mlp")


@pytest.fixture
def old(store_path, monkeypatch):
    """A run that an earlier revision of the training code made of today's spec."""
    with monkeypatch.context() as patch:
        patch.setattr("recombine.specs.REVISION", REVISION - 1)
        return train(SPEC, store_path, device="cpu")[0]


def test_a_run_of_another_revision_opens_lists_and_verifies(old, store_path):
    store = Store(store_path)
    assert old.key != SPEC.digest
    assert list(store.table().index) == [old.key]
    assert store[old.key].spec == SPEC
    assert store[old.key].spec_fields["revision"] == REVISION - 1
    assert list(store.verify()) == [(old.key, [])]
    assert run("verify", store_path) == 0


def test_a_run_of_another_revision_can_be_shown_and_diagnosed(old, capsys):
    assert run("runs", "show", old.key) == 0
    text = capsys.readouterr().out
    assert re.search(rf"revision +{REVISION - 1}\b", text)
    assert f"trained by revision {REVISION - 1} of the code (the current one is {REVISION}): recombine train" in text
    assert run("diagnose", f"run:{old.key}") == 0
    assert "held out" in capsys.readouterr().out


def test_a_run_of_another_revision_is_not_served(old, store_path):
    (new,) = train(SPEC, store_path, device="cpu")
    assert new.key == SPEC.digest != old.key
    assert len(Store(store_path)) == 2
    assert [summary.settings for summary in summarize([old, new])] == [
        {"revision": REVISION - 1},
        {"revision": REVISION},
    ]


def test_raising_the_revision_leaves_specs_readable(monkeypatch):
    text, key = SPEC.to_json(), SPEC.digest
    monkeypatch.setattr("recombine.specs.REVISION", REVISION + 1)
    assert RunSpec.from_json(text) == SPEC
    assert RunSpec.from_json(text).digest != key
