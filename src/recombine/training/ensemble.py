"""Ensembles: members with the same architecture that train as one program, and their stacked state.

Members may differ in seed, task data (training set and its size, hold-out, σ, polarity), learning rate, weight decay
and the weights of loss terms. They share decoder, shapes, batch size, precision and betas. Each distinct example is
stored on the device once; members index a shared table (`tables`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from recombine.errors import InvalidValue
from recombine.specs import RunSpec
from recombine.training.devices import check_precision
from recombine.training.objective import WEIGHTS, Loss, Objective
from recombine.training.tables import DistinctExamples, Schedule, table_of

ABSENT = -1e9
"""Replaces NaN when examples are compared, since NaN does not equal itself."""
STACKED = ("weights", "mean", "square", "step", "alive")
"""Fields of the state that are stacked into one tensor for all members."""


def program_of(spec: RunSpec) -> tuple[object, ...]:
    """Return the settings that all members of an ensemble must share."""
    recipe = spec.recipe
    return (
        spec.decoder, spec.interface, spec.task.direction, recipe.batch, recipe.precision,
        recipe.beta1, recipe.beta2, recipe.epsilon, spec.task.streamed,
    )  # fmt: skip


@dataclass
class State:
    """The state of all members, which changes during training.

    Parameters
    ----------
    weights
        All parameters of each member, as `(member, parameter)`.
    mean
        AdamW's running mean of gradients.
    square
        AdamW's running mean of squared gradients.
    step
        Number of steps taken by each member.
    alive
        False once a member's loss is infinite or NaN; it is not trained further.
    errors
        Each member's squared error at every step so far.

    Examples
    --------
    >>> import recombine as rc
    >>> import torch
    >>> spec = rc.RunSpec(task=rc.BumpTask(size=8), decoder="mlp:width=8:depth=1", recipe=rc.Recipe(steps=3))
    >>> ensemble = rc.Ensemble(spec.seeds(range(2)), torch.device("cpu"))
    >>> state = rc.State.stack([ensemble.fresh(index) for index in range(2)], ensemble.device)
    >>> state.step.tolist(), state.alive.tolist()
    ([0, 0], [True, True])
    """

    weights: Float[Tensor, "member parameter"]
    mean: Float[Tensor, "member parameter"]
    square: Float[Tensor, "member parameter"]
    step: Int[Tensor, " member"]
    alive: Bool[Tensor, " member"]
    errors: list[Float[Tensor, " _"]]

    def member(self, index: int) -> dict[str, Tensor]:
        """Return one member's state on the CPU, for a checkpoint."""
        parts = {name: getattr(self, name)[index].cpu() for name in STACKED}
        return {**parts, "errors": self.errors[index]}

    @classmethod
    def stack(cls, members: Sequence[dict[str, Tensor]], device: torch.device) -> State:
        """Return the state of an ensemble from its members' states."""
        stacked = {name: torch.stack([member[name] for member in members]).to(device) for name in STACKED}
        return cls(**stacked, errors=[member["errors"] for member in members])


class Ensemble:
    """Members that train together.

    Parameters
    ----------
    specs
        The members: specs with the same decoder, shapes, batch, precision and betas.
    device
        Device to train on.

    Examples
    --------
    >>> import recombine as rc
    >>> import torch
    >>> spec = rc.RunSpec(task=rc.BumpTask(size=8), decoder="mlp:width=8:depth=1", recipe=rc.Recipe(steps=3))
    >>> ensemble = rc.Ensemble(spec.seeds(range(2)), torch.device("cpu"))
    >>> len(ensemble), ensemble.totals
    (2, [3, 3])
    """

    def __init__(self, specs: Iterable[RunSpec] | RunSpec, device: torch.device) -> None:
        specs = [specs] if isinstance(specs, RunSpec) else list(specs)
        if not specs:
            raise InvalidValue("specs", specs, "at least one spec")
        for spec in specs:
            if program_of(spec) != program_of(specs[0]):
                allowed = "specs with the same decoder, shapes, batch, precision and betas"
                raise InvalidValue("specs", spec.digest, allowed)
            check_precision(spec.recipe.precision, device)
        self.specs, self.device, self.recipe = specs, device, specs[0].recipe
        decoder = specs[0].module().to(device)
        self.objective = Objective(specs[0].decoder, decoder, self.recipe.precision)
        self.layout = self.objective.layout
        distinct, tables = _shared_rows(self.specs)
        self.table = table_of(distinct, device, len(specs) * self.recipe.batch)
        self.examples = self.table.examples
        self.schedules = [Schedule(spec, table) for spec, table in zip(specs, tables, strict=True)]
        self.totals = [schedule.total for schedule in self.schedules]
        self.batched = device.type == "cuda"
        self.lr = self._vector("lr")
        self.weight_decay = self._vector("weight_decay")
        self.loss_weights = torch.stack([self._vector(name) for name in WEIGHTS], dim=1)

    def __len__(self) -> int:
        return len(self.specs)

    def _vector(self, name: str) -> Float[Tensor, " member"]:
        return torch.tensor([getattr(spec.recipe, name) for spec in self.specs], device=self.device)

    def fresh(self, index: int) -> dict[str, Tensor]:
        """Return one member's initial state."""
        weights = self.layout.flatten(self.specs[index].module())
        return {
            "weights": weights, "mean": torch.zeros_like(weights), "square": torch.zeros_like(weights),
            "step": torch.tensor(0), "alive": torch.tensor(True), "errors": torch.empty(0),
        }  # fmt: skip

    def initial(self) -> State:
        """Return the initial state of all members."""
        return State.stack([self.fresh(index) for index in range(len(self))], self.device)

    def named_weights(self, weights: Float[Tensor, " parameter"]) -> dict[str, Tensor]:
        """Return one member's weights by parameter name."""
        return {name: part.contiguous() for name, part in self.layout.unflatten(weights).items()}

    def gradients(
        self,
        weights: Float[Tensor, "member parameter"],
        rows: Int[Tensor, "member batch"],
        shares: Float[Tensor, "member batch"],
        active: Bool[Tensor, " member"],
    ) -> tuple[Loss, Float[Tensor, "member parameter"]]:
        """Return every member's loss and gradient; those of inactive members are arbitrary.

        On a GPU all members run as one batch. On a CPU they run one by one, so that a member's result is
        bit-identical whatever the others are; `benchmarks/ways.py` measures the cost of both.
        """
        inputs, targets = self.examples.inputs[rows], self.examples.targets[rows]
        if self.batched:
            leaves = weights.detach().requires_grad_()
            total, error = self.objective.member_losses(leaves, inputs, targets, shares, self.loss_weights)
            (gradient,) = torch.autograd.grad(total.sum(), leaves)
            return Loss(total.detach(), error.detach()), gradient
        totals, errors = torch.full((2, len(self)), torch.nan)
        gradient = torch.zeros_like(weights)
        for k in torch.nonzero(active).flatten().tolist():
            leaf = weights[k].detach().requires_grad_()
            total, error = self.objective.loss(leaf, inputs[k], targets[k], shares[k], self.loss_weights[k])
            (gradient[k],) = torch.autograd.grad(total, leaf)
            totals[k], errors[k] = total.detach(), error.detach()
        return Loss(totals, errors), gradient

    @torch.no_grad()
    def outputs(self, weights: Float[Tensor, " parameter"], inputs: Tensor) -> Tensor:
        """Return one member's outputs in float32."""
        return self.objective.outputs(weights, inputs, torch.float32)


def _distinct_rows(rows: Float[Tensor, "row factor"]) -> tuple[Float[Tensor, "distinct factor"], Int[Tensor, " row"]]:
    """Return the sorted distinct rows and the index of each row among them; NaN equals NaN.

    Rows are numbered column by column, since `torch.unique` over whole rows is many times slower.
    """
    number = torch.zeros(len(rows), dtype=torch.int64)
    for column in rows.nan_to_num(nan=ABSENT).unbind(dim=1):
        values, rank = torch.unique(column, return_inverse=True)
        number = torch.unique(number * len(values) + rank, return_inverse=True)[1]
    first = torch.full((int(number.max()) + 1,), len(rows)).scatter_reduce(0, number, torch.arange(len(rows)), "amin")
    return rows[first], number


def group_by_rendering(specs: Sequence[RunSpec]) -> list[list[int]]:
    """Group indices of specs whose tasks have equal examples for equal factor values."""
    groups: dict[str, list[int]] = {}
    for index, spec in enumerate(specs):
        groups.setdefault(spec.task.rendering_key, []).append(index)
    return list(groups.values())


def _shared_rows(specs: Sequence[RunSpec]) -> tuple[list[DistinctExamples], list[Int[Tensor, " row"]]]:
    """Return the distinct examples of all members, and each member's training set as indices into them."""
    shared: list[DistinctExamples] = []
    tables: dict[int, Tensor] = {}
    offset = 0
    for members in group_by_rendering(specs):
        values = [specs[index].task.training_values(specs[index].seed) for index in members]
        distinct, inverse = _distinct_rows(torch.cat(values))
        for index, rows in zip(members, inverse.split([len(v) for v in values]), strict=True):
            tables[index] = rows + offset
        shared.append(DistinctExamples(specs[members[0]].task, distinct))
        offset += len(distinct)
    return shared, [tables[index] for index in range(len(specs))]
