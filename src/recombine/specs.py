"""The spec of a run: everything its result depends on.

>>> spec = RunSpec(task=BumpTask(encoding="rate"), decoder=CNN(width=16), seed=3)
>>> spec.digest  # the run's name in a store
>>> [member.seed for member in spec.seeds(range(4))]
[0, 1, 2, 3]
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from recombine.decoders import CNN, AnyDecoder, Interface, StagedDecoder, build_seeded
from recombine.errors import InvalidValue
from recombine.keys import REVISION, canonical_json, stored_key, with_present_names
from recombine.records import Frozen
from recombine.streams import stream_seed
from recombine.tasks import AnyTask, BumpTask

Precision = Literal["float32", "tf32", "bf16"]
PENALTIES: tuple[str, ...] = ("entropy", "variance")
"""Recipe fields that hold the weights of a decoder's penalties (μ1 and μ2 in Eq. 10–11)."""

LONGEST = 10**9
"""Maximum number of epochs or steps."""
SEEDS = 2**31
"""Seeds must be smaller than this."""
_Share = Annotated[float, Field(ge=0, lt=1)]
_Weight = Annotated[float, Field(ge=0)]


class Recipe(Frozen):
    """How a network is trained: with AdamW on the mean squared error, plus penalties.

    Examples
    --------
    >>> import recombine as rc
    >>> recipe = rc.Recipe(epochs=10, batch=16)
    >>> recipe.total_steps(examples=100)
    70
    >>> recipe.replace(steps=500).epochs is None
    True
    """

    epochs: Annotated[int, Field(ge=1, le=LONGEST)] | None = 50
    """Number of passes over the training set, unless `steps` is given."""
    steps: Annotated[int, Field(ge=1, le=LONGEST)] | None = None
    """Number of optimiser steps; replaces `epochs`."""
    batch: Annotated[int, Field(ge=1, le=2**20)] = 32
    """Batch size; the last batch of an epoch may be smaller."""
    lr: Annotated[float, Field(gt=0)] = 1e-3
    """Learning rate."""
    weight_decay: _Weight = 0.01
    """AdamW's decoupled weight decay."""
    entropy: _Weight = 0.0
    """μ1, weight of the entropy penalty (Eq. 10)."""
    variance: _Weight = 0.0
    """μ2, weight of the variance penalty (Eq. 11)."""
    absolute: _Weight = 0.0
    """Weight of an additional mean absolute error in the loss."""
    beta1: _Share = 0.9
    """AdamW's decay rate for the first moment."""
    beta2: _Share = 0.999
    """AdamW's decay rate for the second moment."""
    epsilon: Annotated[float, Field(gt=0)] = 1e-8
    """AdamW's constant in the denominator."""
    precision: Precision = "float32"
    """Numerical precision: float32 (strict), tf32 (for matrix products) or bf16 (with float32 master weights)."""

    @model_validator(mode="before")
    @classmethod
    def _one_length(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        epochs, steps = fields.get("epochs"), fields.get("steps")
        if steps is None and "epochs" in fields and epochs is None:
            raise InvalidValue("epochs", None, "at least 1, unless steps are given")
        if steps is not None and epochs is not None:
            raise InvalidValue("steps", steps, "left out if epochs are given")
        return fields if steps is None else {**fields, "epochs": None}

    def replace(self, /, **fields: Any) -> Self:
        """Return a copy with some fields changed; a new `steps` replaces `epochs` and vice versa."""
        for new, other in (("steps", "epochs"), ("epochs", "steps")):
            if fields.get(new) is not None and other not in fields:
                fields[other] = None
        return super().replace(**fields)

    def steps_per_epoch(self, examples: int) -> int:
        """Return the number of optimiser steps per epoch, given the number of training examples."""
        return -(-examples // self.batch)

    def total_steps(self, examples: int) -> int:
        """Return the total number of optimiser steps, given the number of training examples."""
        return self.steps or self.steps_per_epoch(examples) * (self.epochs or 0)


class RunSpec(Frozen):
    """The spec of one run: a task, a decoder, a recipe and a seed.

    Examples
    --------
    >>> import recombine as rc
    >>> spec = rc.RunSpec(task=rc.BumpTask(size=8), decoder="cnn:width=16:depth=2", recipe=rc.Recipe(steps=100))
    >>> [member.seed for member in spec.seeds(range(3))]
    [0, 1, 2]
    >>> rc.RunSpec.from_json(spec.to_json()) == spec
    True
    """

    task: AnyTask = BumpTask()
    """Images, encoding, hold-out and training set, as a task or as text, such as `bump:size=8`."""
    decoder: AnyDecoder = CNN()
    """Architecture, as a decoder spec or as text, such as `cnn:width=16`."""
    recipe: Recipe = Recipe()
    """Loss and optimiser."""
    seed: Annotated[int, Field(ge=0, lt=SEEDS)] = 0
    """Seed for the initial weights, the training set and the order of examples."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.decoder.direction != self.task.direction:
            allowed = f"one with the task's direction, {self.task.direction!r}"
            raise InvalidValue("decoder", self.decoder.kind, allowed)
        for penalty in PENALTIES:
            weight = getattr(self.recipe, penalty)
            if weight and not self.decoder.penalised:
                raise InvalidValue(penalty, weight, f"0, since decoder {self.decoder.kind!r} has no such penalty")
        return self

    def to_json(self) -> str:
        """Return the spec and the revision of the training code as they are stored, as JSON."""
        return canonical_json(self._stored())

    def _stored(self) -> dict[str, Any]:
        return {**self.model_dump(mode="json"), "revision": REVISION}

    @classmethod
    def from_stored(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a stored spec under their current names."""
        return {name: value for name, value in with_present_names(fields).items() if name != "revision"}

    @property
    def digest(self) -> str:
        """The run's key in a store, a digest of the spec and the revision of the training code."""
        return stored_key(self._stored())

    @property
    def interface(self) -> Interface:
        """Sizes of the decoder's input and output."""
        return Interface(self.task.code_sizes, self.task.image_shape)

    @property
    def total_steps(self) -> int:
        """Total number of optimiser steps."""
        return self.recipe.steps or self.recipe.total_steps(len(self.task.training_values(self.seed)))

    def module(self) -> StagedDecoder:
        """Return the network with its initial weights."""
        return build_seeded(self.decoder, self.interface, stream_seed(self.seed, "weights"))

    def seeds(self, seeds: Iterable[int]) -> list[RunSpec]:
        """Return a copy of the spec for each seed; only the seeds are validated."""
        seeds = list(seeds)
        if wrong := [seed for seed in seeds if not 0 <= seed < SEEDS]:
            raise InvalidValue("seed", wrong[0], f"0 to {SEEDS - 1}")
        return [self.model_copy(update={"seed": int(seed)}) for seed in seeds]
