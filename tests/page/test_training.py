"""Training in the page, under Node: gradients, AdamW and whole trainings against torch's."""

import json

import pytest
import torch

from recombine.errors import InvalidValue
from recombine.page.training import training_panel, training_settings
from recombine.papers.forced_rendering import PAPER
from recombine.reproduction.report import policy
from recombine.tasks import BumpsTask
from recombine.training import Ensemble, evaluate, fit, scores
from recombine.training.adamw import adamw_update
from recombine.training.fit import Stepper
from tests.page.test_script import needs_node, run

CPU = torch.device("cpu")
PANEL = PAPER.training_panel
LIVE = PANEL.spec
LIVE_STRIPES = LIVE.replace(task=LIVE.task.replace(isolated=True))
SHAPES = {
    "the panel's": LIVE_STRIPES,
    "two blocks, one size": LIVE_STRIPES.replace(
        task=LIVE_STRIPES.task.replace(size=14, sigma=1.5, encoding="bump:variance=2"),
        decoder=LIVE.decoder.replace(width=16), recipe=LIVE.recipe.replace(batch=5, weight_decay=0.3, beta1=0.8),
    ),
    "dark": LIVE.replace(
        task=LIVE.task.replace(size=7, polarity="dark", holdout="center:2:4"), decoder=LIVE.decoder.replace(depth=1),
    ),
}  # fmt: skip


def trained(tmp_path, **request):
    """What the page's script makes of a request."""
    (tmp_path / "request.json").write_text(json.dumps(request))
    return json.loads(run("node", "tests/page/training.js", str(tmp_path / "request.json")))


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
        _, gradient = self.ensemble.gradients(self.state, rows, schedule._shares[:1], torch.ones(1, dtype=torch.bool))
        return gradient[0, : self.parameters].clone()

    def advance(self, steps):
        self.stepper.advance(steps)
        return self.state.errors[0]

    @property
    def weights(self):
        return self.state.weights[0, : self.parameters]


@needs_node
@pytest.mark.parametrize("spec", SHAPES.values(), ids=SHAPES)
def test_gradient_and_step_equal_torch(tmp_path, spec):
    right = Torch(spec, 1)
    ours = trained(
        tmp_path, settings=training_settings(spec), weights=right.initial.tolist(), rows=right.rows,
        isolated=spec.task.isolated,
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
def test_adamw_is_ours(tmp_path):
    recipe = LIVE.recipe.replace(weight_decay=0.1, beta2=0.99, epsilon=1e-4)
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(1, 64, generator=generator)
    gradients = torch.randn(5, 1, 64, generator=generator) * torch.logspace(-6, 1, 64)
    ours = trained(
        tmp_path, recipe=recipe.model_dump(), weights=weights[0].tolist(), gradients=gradients[:, 0].tolist()
    )
    right, mean, square = weights.clone(), torch.zeros(1, 64), torch.zeros(1, 64)
    step = torch.zeros(1, dtype=torch.int64)
    for gradient, after in zip(gradients, ours, strict=True):
        adamw_update(
            right, mean, square, step, gradient, torch.ones(1, dtype=torch.bool), lr=torch.tensor([recipe.lr]),
            weight_decay=torch.tensor([recipe.weight_decay]), beta1=recipe.beta1, beta2=recipe.beta2,
            epsilon=recipe.epsilon,
        )  # fmt: skip
        assert (torch.tensor(after) - right[0]).abs().max() < 1e-6
    assert (right - weights).abs().min() > 1e-6


@needs_node
def test_a_short_training_follows_torch(tmp_path):
    spec, epoch = LIVE_STRIPES, 35
    right = Torch(spec, 2 * epoch)
    assert [len(rows) for rows in right.rows] == 2 * [*[16] * 34, 7]  # the last batch of an epoch is a part
    ours = trained(
        tmp_path, settings=training_settings(spec), weights=right.initial.tolist(), rows=right.rows, isolated=True
    )
    errors = right.advance(2 * epoch)
    assert errors[epoch:].mean() < 0.95 * errors[:epoch].mean()  # it learns
    assert (torch.tensor(ours["errors"]) / errors - 1).abs().max() < 1e-3
    module = spec.module()
    module.load_state_dict(right.ensemble.named_weights(right.state, 0))
    image = module(spec.task.codes(spec.task.grid.points[:1]).float()).detach().flatten()
    assert (torch.tensor(ours["outputs"]) - image).abs().max() < 1e-3


@needs_node
@pytest.mark.slow
@pytest.mark.parametrize("spec", [LIVE, LIVE_STRIPES], ids=["without stripes", "with stripes"])
def test_verdicts_are_those_of_torch(tmp_path, spec):
    seeds, isolated = range(4), spec.task.isolated
    ensemble = Ensemble(spec.seeds(seeds), CPU)
    state = ensemble.initial()
    for _ in fit(ensemble, state):
        pass
    module = spec.module()
    for seed in seeds:
        module.load_state_dict(ensemble.named_weights(state, seed))
        theirs = scores(evaluate(spec.task, lambda codes: module(codes).detach(), CPU))["ood_accuracy"]
        ours = trained(tmp_path, settings=training_settings(spec), seed=seed, isolated=isolated)
        print(f"seed {seed}: torch {theirs:.0%}, page {ours['heldOut']:.0%} in {ours['seconds']:.1f} s")
        for share in (theirs, ours["heldOut"]):
            assert share >= PANEL.filled if isolated else share <= PANEL.failed
        assert ours["kept"] == 1


def test_a_panel_has_all_that_its_worker_needs():
    panel = training_panel(PANEL, heading="h3")
    assert '<h3 id="training-title">' in panel.body
    assert "495 combinations" in panel.body and "289 in it" in panel.body  # noqa: PT018
    written = policy([panel.script], [panel.style], workers=panel.workers)
    assert "worker-src blob:" in written and "trusted-types recombine-training" in written  # noqa: PT018
    assert "worker-src" not in policy([panel.script], [panel.style])


@pytest.mark.parametrize(
    "change",
    [{"decoder": "mlp"}, {"task": BumpsTask(size=14, factors=("x=14", "y=14", "size=2"))},
     {"task": BumpsTask(size=14, factors=("x=14", "y=14"), fixed=("orientation=30",))}],
    ids=["no CNN", "three factors", "no product"],
)  # fmt: skip
def test_what_the_panel_cannot_train_is_refused(change):
    with pytest.raises(InvalidValue, match="training_panel"):
        training_settings(LIVE.replace(**change))


def test_bounds_are_those_of_torchs_first_weights():
    module = LIVE.module()
    for part, data in zip(
        [m for m in module.modules() if hasattr(m, "kernel_size")], training_settings(LIVE)["convolutions"], strict=True
    ):
        reached = part.weight.abs().max().item()
        assert 0.9 * data["bound"] < reached <= data["bound"]
        assert part.bias.abs().max() <= data["bound"]
