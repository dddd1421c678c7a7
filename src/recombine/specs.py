"""The spec of a run: everything its result depends on, and its identity.

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
"""The recipe's fields that weigh a decoder's penalties: μ1 and μ2 of Eq. 10–11."""

LONGEST = 10**9
"""Upper bound of epochs and steps."""
SEEDS = 2**31
"""Seeds are below this."""
_Share = Annotated[float, Field(ge=0, lt=1)]
_Weight = Annotated[float, Field(ge=0)]


class Recipe(Frozen):
    """How a member is trained: AdamW on the mean squared error over pixels, plus penalties.

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
    """Passes over the training set; or give `steps`."""
    steps: Annotated[int, Field(ge=1, le=LONGEST)] | None = None
    """Optimiser steps, whatever the size of the training set."""
    batch: Annotated[int, Field(ge=1, le=2**20)] = 32
    """Examples per step; the last batch of an epoch holds what is left."""
    lr: Annotated[float, Field(gt=0)] = 1e-3
    """Learning rate."""
    weight_decay: _Weight = 0.01
    """AdamW's decoupled weight decay."""
    entropy: _Weight = 0.0
    """μ1, weight of the entropy penalty (Eq. 10)."""
    variance: _Weight = 0.0
    """μ2, weight of the variance penalty (Eq. 11)."""
    absolute: _Weight = 0.0
    """Weight of the mean absolute error, added to the squared one (0.1 in the rotation study)."""
    beta1: _Share = 0.9
    """AdamW's decay of the gradient's running mean."""
    beta2: _Share = 0.999
    """AdamW's decay of the gradient's running mean square."""
    epsilon: Annotated[float, Field(gt=0)] = 1e-8
    """AdamW's guard against division by zero."""
    precision: Precision = "float32"
    """Numerical precision: strict float32, TF32 matrix units, or bfloat16 with float32 master weights."""

    @model_validator(mode="before")
    @classmethod
    def _one_length(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and fields.get("steps") is not None:
            if fields.get("epochs") is not None:
                raise InvalidValue("steps", fields["steps"], "left out where epochs are given")
            return {**fields, "epochs": None}
        return fields

    def replace(self, /, **fields: Any) -> Self:
        """A copy with some fields changed; a new `steps` takes the place of `epochs`, and the other way round."""
        for new, other in (("steps", "epochs"), ("epochs", "steps")):
            if fields.get(new) is not None and other not in fields:
                fields[other] = None
        return super().replace(**fields)

    def steps_per_epoch(self, examples: int) -> int:
        """Optimiser steps of one pass over a training set of so many examples; the last batch may be a part."""
        return -(-examples // self.batch)

    def total_steps(self, examples: int) -> int:
        """Optimiser steps of the whole training on a training set of so many examples."""
        return self.steps or self.steps_per_epoch(examples) * (self.epochs or 0)

    @model_validator(mode="after")
    def _some_length(self) -> Self:
        if self.epochs is None and self.steps is None:
            raise InvalidValue("epochs", None, "at least 1 unless steps are given")
        return self


class RunSpec(Frozen):
    """One member: a task, a decoder, a recipe and a seed.

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
    """What is drawn, coded, held out and trained on; a task, or its text as in flags."""
    decoder: AnyDecoder = CNN()
    """The network's architecture; a spec, or its text, as `cnn:width=16`."""
    recipe: Recipe = Recipe()
    """How it is trained."""
    seed: Annotated[int, Field(ge=0, lt=SEEDS)] = 0
    """Where all its random numbers come from: weights, training set, order of examples."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.decoder.direction != self.task.direction:
            raise InvalidValue(
                "decoder", self.decoder.kind, f"one whose direction is {self.task.direction!r}, like the task's"
            )
        for penalty in PENALTIES:
            weight = getattr(self.recipe, penalty)
            if weight and not self.decoder.penalised:
                raise InvalidValue(penalty, weight, f"0, since decoder {self.decoder.kind!r} has no such penalty")
        return self

    def to_json(self) -> str:
        """The spec and the revision of the training code, as a store keeps them."""
        return canonical_json(self._stored())

    def _stored(self) -> dict[str, Any]:
        return {**self.model_dump(mode="json"), "revision": REVISION}

    @classmethod
    def from_stored(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """The spec's fields as they are named now, from what any edition of a store keeps, of any revision."""
        return {name: value for name, value in with_present_names(fields).items() if name != "revision"}

    @property
    def digest(self) -> str:
        """The run's key in a store: of the spec, and of the revision of the code that trains it."""
        return stored_key(self._stored())

    @property
    def interface(self) -> Interface:
        """The two ends of the decoder."""
        return Interface(self.task.code_sizes, self.task.image_shape)

    @property
    def total_steps(self) -> int:
        """Optimiser steps of the whole training."""
        return self.recipe.steps or self.recipe.total_steps(len(self.task.training_values(self.seed)))

    def module(self) -> StagedDecoder:
        """The member's network as it is before the first step."""
        return build_seeded(self.decoder, self.interface, stream_seed(self.seed, "weights"))

    def seeds(self, seeds: Iterable[int]) -> list[RunSpec]:
        """The same run for several seeds; validated no further, as nothing else depends on the seed."""
        seeds = list(seeds)
        if wrong := [seed for seed in seeds if not 0 <= seed < SEEDS]:
            raise InvalidValue("seed", wrong[0], f"0 to {SEEDS - 1}")
        return [self.model_copy(update={"seed": int(seed)}) for seed in seeds]
