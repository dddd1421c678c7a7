"""Every task × hold-out × encoding × decoder, for one to five factors, fits together or says in one line why not.

A decoder sees a task through its interface alone, so it is tried on the interface of every task × encoding.
"""

from functools import cache

import torch

from recombine.encodings import ENCODINGS
from recombine.errors import InvalidValue
from recombine.holdouts import Center, Nothing
from recombine.specs import RunSpec
from recombine.tasks import TASKS
from tests.contracts.forms import FormsTask
from tests.small import small_tasks

BUILDERS = {
    **{f"{name} {number}": maker for name in TASKS for number, maker in enumerate(small_tasks(name))},
    **{f"forms {count}": lambda count=count, **fields: FormsTask(count=count, **fields) for count in range(1, 6)},
}
"""A function that makes each task with some more fields."""


@cache
def numbers_of_factors():
    """How many factors each task has."""
    return {name: len(make(holdout="none").grid.factors) for name, make in BUILDERS.items()}


def fitting(**fields):
    """Every task that can have the fields; the others must refuse them."""
    for name, make in BUILDERS.items():
        try:
            task = make(**fields)
        except InvalidValue:
            continue
        yield name, task


def test_there_are_one_to_five_factors():
    assert set(numbers_of_factors().values()) >= {1, 2, 3, 4, 5}


def test_holdouts(full_holdout):
    assert_fitting(full_holdout, ENCODINGS["bump"]())


def test_encodings(encoding):
    assert_fitting(Center(), encoding)


def assert_fitting(holdout, encoding):
    """A hold-out and an encoding, which know nothing of one another, go with every task of several factors."""
    names = []
    for name, task in fitting(holdout=holdout, encoding=encoding, training="draws:7"):
        names.append(name)
        values = task.training_values(seed=0)
        assert not task.held_out[task.grid.nearest(values)].any(), name
        inputs, targets = task.examples(values)
        assert inputs.shape == (7, sum(task.code_sizes)), name
        assert targets.shape == (7, *task.image_shape), name
        assert torch.isfinite(inputs).all(), name
    assert {name for name, count in numbers_of_factors().items() if count > 1} <= set(names), "nothing speaks against"


def test_holdouts_of_two_factors_leave_the_others_free(full_holdout):
    if "factors" not in type(full_holdout).model_fields:
        return
    for count in (3, 4, 5):
        grid = FormsTask(count=count, holdout="none").grid
        chosen = full_holdout.replace(factors=("x", 2))
        task = FormsTask(count=count, holdout=chosen)
        alone = full_holdout.mask(type(grid)((grid.factors[0], grid.factors[2])))
        mask = task.held_out.reshape(grid.shape).movedim(2, 1)
        assert torch.equal(mask, alone.reshape(*alone.shape, *[1] * (count - 2)).expand(mask.shape))
        assert task.holdout.resolved(grid) == task.holdout
        assert type(task).from_json(task.to_json()) == task


def test_a_task_with_it_goes_through_json_and_says_what_it_keeps(full_holdout):
    for name, task in fitting(holdout=full_holdout):
        assert type(task).from_json(task.to_json()) == task, name
        assert task.holdout_summary == task.holdout.summary(task.grid), name
        assert not task.holdout_summary.unseen or task.allow_unseen, name


def test_isolated_examples(encoding):
    names = []
    for name, task in fitting(encoding=encoding, isolated=True, training="draws:3"):
        names.append(name)
        values = task.training_values(seed=0)
        inputs, targets = task.examples(values)
        absent = torch.isnan(values)
        assert (absent.sum(dim=1) == len(task.grid.factors) - 1)[:-3].all(), name
        assert torch.isfinite(inputs).all(), name
        assert torch.isfinite(targets).all(), name
        blocks = inputs.split(task.code_sizes, dim=1)
        for column, block in zip(absent.unbind(1), blocks, strict=True):
            assert not block[column].any(), name
    expected = {f"forms {count}" for count in range(2, 6)} if encoding.population else set()
    assert {name for name in names if name.startswith("forms")} == expected


@cache
def unlike_tasks(direction):
    """Name, task, inputs and targets for each interface that there is, all of which a decoder must take."""
    tasks = {}
    for encoding in ("bump", "rate"):
        for name, task in fitting(holdout=Nothing(), encoding=encoding, direction=direction):
            interface = RunSpec(task=task, decoder="encoder" if direction == "encode" else "mlp").interface
            if interface not in tasks:
                tasks[interface] = (f"{name}, {encoding}", task, *task.examples(task.grid.points[:3]))
    assert {len(interface.code_sizes) for interface in tasks} >= {1, 2, 3, 4, 5}
    return list(tasks.values())


def test_decoders(decoder):
    for name, task, inputs, targets in unlike_tasks(decoder.direction):
        outputs = RunSpec(task=task, decoder=decoder).module()(inputs)
        assert outputs.shape == targets.shape, name
        assert torch.isfinite(outputs).all(), name
