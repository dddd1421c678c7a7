"""What every training-set rule promises."""

import torch

from recombine.tasks import BumpTask


def test_chooses_what_is_available(training_rule):
    for available in (100, 495):
        chosen = training_rule.choose(available, torch.Generator().manual_seed(3))
        assert len(chosen) == training_rule.count(available)
        assert chosen.min() >= 0
        assert chosen.max() < available


def test_depends_on_the_generator_alone(training_rule):
    first, again = (training_rule.choose(300, torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(first, again)


def test_goes_through_json_and_a_task(training_rule):
    assert type(training_rule).from_json(training_rule.to_json()) == training_rule
    task = BumpTask(size=14, training=training_rule)
    values = task.training_values(seed=0)
    assert values.shape == (training_rule.count(int((~task.held_out).sum())), 2)
    assert torch.equal(values, task.training_values(seed=0))
