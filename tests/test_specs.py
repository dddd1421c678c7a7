"""Identity: equal fields, equal digest; any changed field, another digest."""

import json
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine.decoders import DECODERS
from recombine.encodings import ENCODINGS
from recombine.errors import InvalidValue
from recombine.holdouts import HOLDOUTS, Pattern
from recombine.records import added_defaults
from recombine.reproduction.installed import PRESETS
from recombine.specs import Recipe, RunSpec
from recombine.store.summary import flattened
from recombine.tasks import TASKS, BumpTask, Task
from recombine.training import Ensemble

CHANGES = {
    "task": [{"size": 27}, {"sigma": 1.1}, {"polarity": "dark"}, {"encoding": "bump:variance=3"}, {"holdout": "corner"},
             {"training": "draws:2001"}, {"centers": "real"}, {"region": "whole"}, {"isolated": True},
             {"isolated": True, "mixing": 0.5}, {"allow_unseen": True}, {"brightness": 2, "holdout": "none"}],
    "decoder": [{"width": 63}, {"depth": 5}],
    "recipe": [{"epochs": 51}, {"batch": 31}, {"lr": 2e-3}, {"weight_decay": 0.0}, {"absolute": 0.1}, 
               {"beta1": 0.8},                {"beta2": 0.9}, {"epsilon": 1e-7}, {"precision": "bf16"},
               {"loss": "cross_entropy"}, {"lr_drops": (0.5,)}, {"lr_end": 0.1}],
}  # fmt: skip


def test_every_changed_field_changes_the_digest():
    base = RunSpec()
    specs = [base, base.replace(seed=1)]
    for part, changes in CHANGES.items():
        specs += [base.replace(**{part: getattr(base, part).replace(**change)}) for change in changes]
    assert len({spec.digest for spec in specs}) == len(specs)


def test_a_changed_default_would_change_the_digest():
    """All defaults are written out, so the identity does not rest on them."""
    written = flattened(json.loads(RunSpec().to_json()))
    expected = {f"task.{name}" for name in BumpTask.model_fields} | {f"recipe.{name}" for name in Recipe.model_fields}
    nested = {"task.encoding", "task.holdout", "task.training"}
    added = {f"task.{name}" for name in added_defaults(BumpTask)}
    added |= {f"recipe.{name}" for name in added_defaults(Recipe)}
    assert expected - nested - added <= set(written)
    assert not added & set(written)
    assert {"task.encoding.variance", "task.holdout.low", "task.training.samples", "decoder.width", "seed"} <= set(
        written
    )


NEVER_CHANGED = {
    Recipe: {"loss": "squared_error", "lr_drops": (), "lr_end": 1.0},
    Task: {"isolated_factors": None, "isolated_together": 1},
    Pattern: {"factors": None},
}
"""Defaults of fields that were added after runs were stored: a run without the field has them for good."""


def test_defaults_of_added_fields_never_change():
    for cls, defaults in NEVER_CHANGED.items():
        assert defaults.items() <= added_defaults(cls).items()


def test_a_field_that_was_added_is_part_of_the_identity_once_it_differs():
    base = BumpTask(brightness=2, holdout="none", isolated=True)
    others = [base.replace(isolated_factors=("x",)), base.replace(isolated_together=2)]
    others += [base.replace(holdout="corner:1"), base.replace(holdout="corner:1:factors=x,y")]
    assert len({task.digest for task in (base, *others)}) == 5
    for task in others:
        assert BumpTask.from_json(task.to_json()) == task
        assert TASKS.parse(str(task)) == task


@settings(max_examples=40, deadline=None)
@given(
    size=st.integers(6, 30),
    sigma=st.floats(0.1, 5),
    encoding=st.sampled_from(list(ENCODINGS)),
    holdout=st.sampled_from([name for name in HOLDOUTS if name not in ("mask", "where")]),
    decoder=st.sampled_from([name for name, cls in DECODERS.items() if cls.direction == "decode"]),
    lr=st.floats(1e-6, 1),
    seed=st.integers(0, 2**31 - 1),
)
def test_round_trip(size, sigma, encoding, holdout, decoder, lr, seed):
    spec = RunSpec(
        task=BumpTask(size=size, sigma=sigma, encoding=encoding, holdout=holdout),
        decoder=decoder,
        recipe=Recipe(lr=lr),
        seed=seed,
    )
    again = RunSpec.from_json(spec.to_json())
    assert again == spec
    assert again.digest == spec.digest


def test_total_steps_count_whole_epochs_and_the_last_part_of_a_batch():
    spec = RunSpec(task=BumpTask(size=8, training="pick:33"), recipe=Recipe(epochs=3, batch=16))
    assert (spec.recipe.steps_per_epoch(33), spec.total_steps) == (3, 9)
    assert spec.replace(recipe=Recipe(steps=7)).total_steps == 7
    assert Ensemble([spec], torch.device("cpu")).totals == [spec.total_steps]


def test_replacing_steps_replaces_epochs():
    assert Recipe().replace(steps=5).epochs is None
    assert Recipe(steps=5).replace(epochs=2).steps is None


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"seed": -1}, "seed"),
        ({"recipe": {"lr": 0}}, "lr"),
        ({"recipe": {"lr": float("inf")}}, "lr"),
        ({"recipe": {"epochs": 5, "steps": 5}}, "steps"),
        ({"recipe": {"epochs": None}}, "epochs"),
        ({"penalties": ("entropy:0.1",)}, "remedy"),
        ({"penalties": ("hessian", "hessian")}, "penalties"),
        ({"recipe": {"momentum": 0.9}}, "field"),
        ({"decoder": "cnn:depth=0"}, "decoder.depth"),
        ({"decoder": "encoder"}, "decoder"),
        ({"decoder": "transformer:heads=3"}, "decoder.width"),
        ({"task": {"kind": "bump", "sigma": -2}}, "task.sigma"),
    ],
    ids=str,
)
def test_mistakes_name_the_field(fields, field):
    with pytest.raises(InvalidValue) as caught:
        RunSpec(**fields)
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field} must be ")
    assert isinstance(caught.value, ValueError)


def test_an_empty_list_is_named_in_plain_words():
    with pytest.raises(InvalidValue, match="depths must be a list of at least 1 value"):
        PRESETS["quick"].changed(["depths="])


def test_a_mistake_can_be_pickled():
    error = pickle.loads(pickle.dumps(InvalidValue("width", 0, "at least 1")))
    assert (str(error), error.field) == ("width must be at least 1, got 0", "width")


def test_seeds():
    assert RunSpec().seeds(range(5)) == [RunSpec(seed=seed) for seed in range(5)]
    for seed in (-1, 2**31):
        with pytest.raises(InvalidValue, match="seed must be"):
            RunSpec().seeds([0, seed])
