"""Training in the page, under Node: gradients, AdamW and whole trainings against torch's."""

import json
import subprocess

import pytest
import torch

from recombine.errors import InvalidValue
from recombine.page.training import LIVE, LIVE_STRIPES, training_settings
from recombine.training import Ensemble
from recombine.training.fit import Stepper
from tests.page.test_script import ROOT, needs_node

CPU = torch.device("cpu")
SHAPES = {
    "the panel's": LIVE_STRIPES,
    "two blocks, one size": LIVE_STRIPES.replace(
        task=LIVE_STRIPES.task.replace(size=14, sigma=1.5, encoding="bump:variance=2"),
        decoder=LIVE.decoder.replace(width=16, depth=2), recipe=LIVE.recipe.replace(batch=5, weight_decay=0.3, beta1=0.8),
    ),
    "dark": LIVE.replace(
        task=LIVE.task.replace(size=7, polarity="dark", holdout="center:2:4"), decoder=LIVE.decoder.replace(depth=1),
    ),
}  # fmt: skip


def trained(tmp_path, **request):
    """What the page's script makes of a request."""
    (tmp_path / "request.json").write_text(json.dumps(request))
    words = ["node", "tests/page/training.js", str(tmp_path / "request.json")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


class Torch:
    """The same training by the package: its initial weights, its batches, and what it makes of them."""

    def __init__(self, spec, steps):
        self.ensemble = Ensemble([spec.replace(recipe=spec.recipe.replace(steps=steps))], CPU)
        self.state, self.parameters = self.ensemble.initial(), -self.ensemble.layout.spare or None
        self.initial = self.state.weights[0, : self.parameters].clone()
        self.stepper = Stepper(self.ensemble, self.state)
        schedule = self.ensemble.schedules[0]
        places = {row: place for place, row in enumerate(schedule.table.tolist())}
        self.rows = []
        for batch in schedule._rows(range(-(-steps // schedule.steps_per_epoch)))[:steps]:
            full = schedule._shares[len(self.rows) % schedule.steps_per_epoch] > 0
            self.rows.append([places[row] for row in batch[full].tolist()])
        self.gradient = self._gradient(schedule)

    def _gradient(self, schedule):
        rows = schedule._rows(range(1))[:1]
        _, gradient = self.ensemble.gradients(
            self.state.weights, rows, schedule._shares[:1], torch.ones(1, dtype=torch.bool)
        )
        return gradient[0, : self.parameters].clone()

    def advance(self, steps):
        self.stepper.advance(steps)
        return self.state.errors[0]

    @property
    def weights(self):
        return self.state.weights[0, : self.parameters]


@needs_node
@pytest.mark.parametrize("plain", [False, True], ids=["compiled", "plain"])
@pytest.mark.parametrize("spec", SHAPES.values(), ids=SHAPES)
def test_gradient_and_step_equal_torch(tmp_path, spec, plain):
    right = Torch(spec, 1)
    ours = trained(
        tmp_path, settings=training_settings(spec), weights=right.initial.tolist(), rows=right.rows,
        stripes=spec.task.isolated, plain=plain,
    )  # fmt: skip
    gradient = torch.tensor(ours["gradient"])
    assert right.gradient.abs().max() > 1e-3
    assert (gradient - right.gradient).abs().max() < 1e-4 * right.gradient.abs().max()
    error = right.advance(1)
    assert ours["errors"] == pytest.approx(error.tolist(), rel=1e-5)
    settled = right.gradient.abs() > 1e-5  # AdamW's first step is the sign of a gradient, which rounding may decide
    assert settled.sum() > 500
    moved = (right.weights - right.initial)[settled]
    step = (torch.tensor(ours["weights"]) - right.initial)[settled]
    assert (step - moved).abs().max() < 1e-3 * spec.recipe.lr


@needs_node
def test_a_short_training_follows_torch(tmp_path):
    steps, spec = 60, LIVE_STRIPES
    right = Torch(spec, steps)
    assert len({len(rows) for rows in right.rows}) == 2  # the last batch of an epoch is a part
    ours = trained(
        tmp_path, settings=training_settings(spec), weights=right.initial.tolist(), rows=right.rows, stripes=True
    )
    errors = right.advance(steps)
    assert errors[-10:].mean() < 0.5 * errors[:3].mean()  # it learns
    assert (torch.tensor(ours["errors"]) / errors - 1).abs().max() < 1e-2
    module = spec.module()
    module.load_state_dict(right.ensemble.named_weights(right.state.weights[0]))
    image = module(spec.task.codes(spec.task.grid.points[:1]).float()).detach().flatten()
    assert (torch.tensor(ours["outputs"]) - image).abs().max() < 1e-2


def test_bounds_are_those_of_torchs_first_weights():
    module = LIVE.module()
    for part, data in zip(
        [m for m in module.modules() if hasattr(m, "kernel_size")], training_settings()["convolutions"], strict=True
    ):
        reached = part.weight.abs().max().item()
        assert 0.9 * data["bound"] < reached <= data["bound"]
        assert part.bias.abs().max() <= data["bound"]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (LIVE.replace(decoder=LIVE.decoder.replace(width=12)), "width"),
        (LIVE.replace(decoder="mlp"), "decoder"),
        (LIVE.replace(task=LIVE.task.replace(size=20)), "size"),
        (LIVE.replace(task=LIVE.task.replace(encoding="rate")), "encoding"),
        (LIVE.replace(recipe=LIVE.recipe.replace(epochs=3)), "steps"),
        (LIVE.replace(task=LIVE.task.replace(training="pick:10")), "training"),
    ],
)
def test_what_the_page_does_not_train_is_refused(spec, field):
    with pytest.raises(InvalidValue) as refused:
        training_settings(spec)
    assert refused.value.field == field
