"""Parts from a file of the user's: results of old code are never returned silently for new code."""

import importlib
import linecache
import logging
import shutil
import sys
import types

import pytest
import torch

import recombine as rc
from recombine.errors import InvalidValue, StoreError
from recombine.own_parts import own_parts
from recombine.store import Store
from recombine.sweep.group import Group
from tests.small import small_spec

FILE = '''
from typing import Literal

from torch import nn

import recombine as rc


@rc.DECODERS.register
class Mine(rc.DecoderSpec):
    """A linear layer."""

    kind: Literal["mine"] = "mine"
    version = {version}

    def build(self, interface):
        hidden = nn.Linear(interface.code_size, {units})
        output = nn.Sequential(nn.Linear({units}, 64), nn.Unflatten(1, (8, 8)))
        return rc.StagedDecoder({{"hidden": hidden, "output": output}})


@rc.REMEDIES.register
class Small(rc.Penalty):
    """Penalise large outputs."""

    kind: Literal["small"] = "small"

    def loss(self, decode, codes, blocks, generator):
        return {factor} * decode(codes).square().mean()


@rc.TASKS.register
class Bumps(rc.BumpTask):
    """Bumps under another name."""

    kind: Literal["my_bumps"] = "my_bumps"
'''
CPU = torch.device("cpu")
BEFORE = {"version": 0, "units": 4, "factor": 1}


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Write and import the file; written again, it replaces the classes, as a new process would."""
    monkeypatch.syspath_prepend(tmp_path)

    def forget():
        for registry, kind in ((rc.DECODERS, "mine"), (rc.REMEDIES, "small"), (rc.TASKS, "my_bumps")):
            registry.pop(kind, None)
        sys.modules.pop("my_parts", None)

    def write(**changes):
        forget()
        (tmp_path / "my_parts.py").write_text(FILE.format(**{**BEFORE, **changes}))
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        importlib.invalidate_caches()
        importlib.import_module("my_parts")
        return small_spec(steps=3).replace(task="my_bumps:size=8", decoder="mine").with_remedy("small")

    yield write
    forget()


def test_edited_code_is_reported_until_it_has_a_new_version(written, tmp_path, caplog):
    spec = written()
    (before,) = rc.train(spec, tmp_path / "store", device="cpu")
    assert sorted(before.result["provenance"]["own_parts"]) == ["Bumps (my_bumps)", "Mine (mine)", "Small (small)"]
    said = lambda: [record.message for record in caplog.records if "has changed" in record.message]  # noqa: E731
    with caplog.at_level(logging.WARNING):
        rc.train(written(), tmp_path / "store", device="cpu")
        assert not said()
        edited = written(factor=2)
        assert edited.digest == spec.digest
        rc.train(edited, tmp_path / "store", device="cpu")
    (line,) = said()  # one for all parts of a file
    assert "the code of my_parts.py has changed since 1 of these runs" in line
    caplog.clear()
    versioned = written(factor=2, version=2)
    assert versioned.digest != spec.digest
    (after,) = rc.train(versioned, tmp_path / "store", device="cpu")
    assert not said()
    assert after.key != before.key
    assert rc.RunSpec.from_json(versioned.to_json()) == versioned
    written()
    with pytest.raises(InvalidValue, match="version must be 0"):
        after.module()


def test_weights_that_no_longer_fit_are_one_clear_line(written, tmp_path):
    (run,) = rc.train(written(), tmp_path / "store", device="cpu")
    written(units=5)
    with pytest.raises(StoreError, match=r"the code of my_parts.py has changed since"):
        Store(tmp_path / "store").run(run.key).module()
    written(factor=2)
    with pytest.warns(UserWarning, match="changed since"):
        Store(tmp_path / "store").run(run.key).module()


def test_a_checkpoint_of_other_code_is_not_continued(written, tmp_path):
    store = Store(tmp_path / "store")
    for factor, steps in ((1, 3), (2, 0)):
        spec = written(factor=factor)
        group = Group(store, {spec.digest: spec}, CPU)
        assert group.steps_done == (0 if factor == 1 else steps)
        for _ in group.fit():
            pass
        group.checkpoint()
    assert Group(store, {spec.digest: spec}, CPU).steps_done == 3


def test_an_edited_factory_in_a_notebook_is_noticed(monkeypatch):
    """A notebook has no file; linecache has the source of its cells."""
    monkeypatch.setitem(sys.modules, "notebook", types.ModuleType("notebook"))
    digests = set()
    for units in range(2):
        place, code = f"<cell {units}>", f"def cell(interface):\n    return {units}\n"
        monkeypatch.setitem(linecache.cache, place, (len(code), None, code.splitlines(True), place))
        names = {"__name__": "notebook"}
        exec(compile(code, place, "exec"), names)
        digests |= set(own_parts(rc.module_decoder("cell")(names["cell"])()).values())
        rc.DECODERS.unregister("cell")
    assert len(digests) == 2
