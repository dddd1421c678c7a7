"""Ensembles: members with the same architecture that train as one program, and their stacked state.

Members may differ in seed, task data (training set and its size, hold-out, σ, polarity), learning rate, weight decay
and the weights of loss terms. They share decoder, shapes, batch size, precision, loss and betas. Each distinct example
is stored on the device once; members index a shared table (`tables`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from recombine.errors import InvalidValue
from recombine.specs import RunSpec
from recombine.streams import stream_seed
from recombine.training.devices import check_precision
from recombine.training.objective import Batch, Loss, Objective, kept_buffers
from recombine.training.tables import DistinctExamples, Schedule, table_of

ABSENT = -1e9
"""Replaces NaN when examples are compared, since NaN does not equal itself."""


def program_of(spec: RunSpec) -> tuple[object, ...]:
    """Return the settings that all members of an ensemble must share."""
    recipe = spec.recipe
    return (
        spec.decoder, spec.interface, spec.task.direction, recipe.batch, recipe.precision, recipe.loss,
        recipe.beta1, recipe.beta2, recipe.epsilon, spec.task.streamed,
        tuple(penalty.model_copy(update={"weight": 0.0}) for penalty in spec.penalties),
    )  # fmt: skip


LR_DROP = 0.1
"""Factor by which the learning rate drops."""
STACKED = ("weights", "mean", "square", "step", "alive", "buffers")
"""Parts of the state that have a row per member."""


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
    buffers
        The modules' buffers, as running means; most decoders have none.
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
    buffers: Float[Tensor, "member buffer"]
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
        The members: specs with the same decoder, shapes, batch, precision, loss and betas.
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
                allowed = "specs with the same decoder, shapes, batch, precision, loss and betas"
                raise InvalidValue("specs", spec.digest, allowed)
            check_precision(spec.recipe.precision, device)
        self.specs, self.device, self.recipe = specs, device, specs[0].recipe
        self.objective = Objective(specs[0], device)
        self.layout = self.objective.layout
        distinct, tables = _shared_rows(self.specs)
        self.table = table_of(distinct, device, len(specs) * self.recipe.batch)
        self.examples = self.table.examples
        self.schedules = [Schedule(spec, table) for spec, table in zip(specs, tables, strict=True)]
        self.totals = [schedule.total for schedule in self.schedules]
        self.lr = self._vector("lr")
        self.drops, self.lr_end = self._drops(), self._vector("lr_end")
        self.lengths = torch.tensor(self.totals, device=device)
        self.falls = bool((self.lr_end < 1).any())
        self.weight_decay = self._vector("weight_decay")
        self.terms = {"absolute": self._vector("absolute")}
        for place, penalty in enumerate(specs[0].penalties):
            self.terms[penalty.kind] = torch.tensor([spec.penalties[place].weight for spec in specs], device=device)
        seeds = [stream_seed(spec.seed, "penalties") for spec in specs]
        self.noise_seeds = torch.tensor(seeds, device=device)
        self._check(distinct[0])
        self.batched = device.type == "cuda" and self.can_batch()

    def __len__(self) -> int:
        return len(self.specs)

    def _vector(self, name: str) -> Float[Tensor, " member"]:
        return torch.tensor([getattr(spec.recipe, name) for spec in self.specs], device=self.device)

    def _drops(self) -> Float[Tensor, "member drop"]:
        """Return the steps at which every member's learning rate drops."""
        plans = zip(self.specs, self.totals, strict=True)
        steps = [torch.tensor([share * total for share in spec.recipe.lr_drops]) for spec, total in plans]
        return pad_sequence(steps, batch_first=True, padding_value=torch.inf).to(self.device)

    def rates(self, step: Int[Tensor, " member"]) -> Float[Tensor, " member"]:
        """Return every member's learning rate after a number of steps."""
        lr = self.lr
        if self.drops.shape[1]:
            lr = lr * LR_DROP ** (step[:, None] >= self.drops).sum(dim=1)
        if self.falls:
            cosine = (1 + torch.cos(torch.pi * step / self.lengths)) / 2
            lr = lr * (self.lr_end + (1 - self.lr_end) * cosine)
        return lr

    def fresh(self, index: int) -> dict[str, Tensor]:
        """Return one member's initial state."""
        module = self.specs[index].module()
        weights = self.layout.flatten(dict(module.named_parameters()))
        return {
            "weights": weights, "mean": torch.zeros_like(weights), "square": torch.zeros_like(weights),
            "step": torch.tensor(0), "alive": torch.tensor(True), "errors": torch.empty(0),
            "buffers": self.objective.buffer_layout.flatten(kept_buffers(module)),
        }  # fmt: skip

    def initial(self) -> State:
        """Return the initial state of all members."""
        return State.stack([self.fresh(index) for index in range(len(self))], self.device)

    def named_weights(self, state: State, index: int) -> dict[str, Tensor]:
        """Return one member's parameters and buffers by name."""
        named = self.layout.unflatten(state.weights[index])
        named |= self.objective.buffer_layout.unflatten(state.buffers[index])
        return {name: part.contiguous() for name, part in named.items()}

    def _check(self, distinct: DistinctExamples) -> None:
        """Refuse a decoder or a penalty that cannot train, before the first step."""
        first = self.fresh(0)
        weights, buffers = (first[name].to(self.device) for name in ("weights", "buffers"))
        rows = torch.zeros(2, dtype=torch.int64, device=self.device)
        batch = self._batch(rows, torch.full((2,), 0.5, device=self.device), rows[0], buffers, 0)
        # as many rows as in training, and different ones: a penalty may need both
        spread = torch.linspace(0, len(distinct.values) - 1, self.recipe.batch).long()
        inputs, targets = (part.to(self.device) for part in distinct.task.examples(distinct.values[spread]))
        self.objective.check(weights, batch._replace(inputs=inputs, targets=targets))

    def can_batch(self) -> bool:
        """Return whether members can run as one batch; `vmap` refuses some modules, such as a spectral norm."""
        if self.objective.forwards.members is not None:
            return True
        state = State.stack([self.fresh(0)], self.device)
        rows, shares = torch.zeros(1, 2, dtype=torch.int64, device=self.device), torch.ones(1, 2, device=self.device)
        try:
            weights = state.weights.requires_grad_()
            batch = self._batch(rows, shares, state.step, state.buffers, slice(0, 1))
            self.objective.member_losses(weights, batch).total.sum().backward()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            return False
        return True

    def _batch(self, rows: Tensor, shares: Tensor, step: Tensor, buffers: Tensor, member: int | slice) -> Batch:
        """One member's batch, or all members'."""
        terms = {name: weights[member] for name, weights in self.terms.items()}
        inputs, targets = self.examples.inputs[rows], self.examples.targets[rows]
        return Batch(inputs, targets, shares, self.noise_seeds[member], step, terms, buffers)

    def gradients(
        self, state: State, rows: Int[Tensor, "member batch"], shares: Float[Tensor, "member batch"], active: Tensor
    ) -> tuple[Loss, Float[Tensor, "member parameter"]]:
        """Return every member's loss and gradient; those of inactive members are arbitrary.

        On a GPU all members run as one batch. On a CPU they run one by one, so that a member's result is
        bit-identical whatever the others are; `benchmarks/ways.py` measures the cost of both.
        """
        if self.batched:
            leaves = state.weights.detach().requires_grad_()
            batch = self._batch(rows, shares, state.step, state.buffers, slice(None))
            loss = self.objective.member_losses(leaves, batch)
            (gradient,) = torch.autograd.grad(loss.total.sum(), leaves)
            return Loss(*(part.detach() for part in loss)), gradient
        totals, errors = torch.full((2, len(self)), torch.nan, device=self.device)
        gradient, buffers = torch.zeros_like(state.weights), state.buffers.clone()
        # A CUDA graph cannot depend on values, so there every member takes part and the caller leaves some out.
        for k in range(len(self)) if active.is_cuda else torch.nonzero(active).flatten().tolist():
            leaf = state.weights[k].detach().requires_grad_()
            loss = self.objective.loss(leaf, self._batch(rows[k], shares[k], state.step[k], state.buffers[k], k))
            (gradient[k],) = torch.autograd.grad(loss.total, leaf)
            totals[k], errors[k], buffers[k] = (part.detach() for part in loss)
        return Loss(totals, errors, buffers), gradient

    @torch.no_grad()
    def outputs(self, state: State, index: int, inputs: Tensor) -> Tensor:
        """Return one member's outputs in float32, in evaluation mode."""
        return self.objective.decode(state.weights[index], state.buffers[index])(inputs).float()


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
