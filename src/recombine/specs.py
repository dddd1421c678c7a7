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

from recombine.decoders import CNN, AnyDecoder, Interface, StagedDecoder, UNetSpec, build_seeded, seeded
from recombine.errors import InvalidValue
from recombine.keys import FIRST_PENALTIES, REVISION, canonical_json, stored_key, with_penalties, with_present_names
from recombine.records import ADDED, Frozen
from recombine.remedies import REMEDIES, AnyPenalty, Remedy
from recombine.streams import stream_seed
from recombine.tasks import AnyTask, BumpTask

Precision = Literal["float32", "tf32", "bf16"]
CROSS_ENTROPY = "cross_entropy"
LONGEST = 10**9
"""Maximum number of epochs or steps."""
SEEDS = 2**31
"""Seeds must be smaller than this."""
_Share = Annotated[float, Field(ge=0, lt=1)]
_Weight = Annotated[float, Field(ge=0)]


class Recipe(Frozen):
    """How a network is trained: with AdamW, by default on the mean squared error.

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
    """Passes over the training set, unless `steps` is given."""
    steps: Annotated[int, Field(ge=1, le=LONGEST)] | None = None
    """Number of optimiser steps; replaces `epochs`."""
    batch: Annotated[int, Field(ge=1, le=2**20)] = 32
    """Batch size; the last batch of an epoch may be smaller."""
    lr: Annotated[float, Field(gt=0)] = 1e-3
    """Learning rate."""
    weight_decay: _Weight = 0.01
    """AdamW's decoupled weight decay."""
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
    loss: Annotated[Literal["squared_error", "cross_entropy"], ADDED] = "squared_error"
    """Loss: the mean squared error, or for decoders whose outputs are probabilities the cross-entropy over pixels."""
    lr_drops: Annotated[tuple[Annotated[float, Field(gt=0, lt=1)], ...], ADDED] = ()
    """Shares of the training after which the learning rate is divided by 10, e.g. 0.5,0.75."""
    lr_end: Annotated[Annotated[float, Field(gt=0, le=1)], ADDED] = 1.0
    """Share of the learning rate that is left at the end, after falling along half a cosine."""

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
    penalties: Annotated[tuple[AnyPenalty, ...], ADDED] = ()
    """Loss terms that remedies add, such as `hessian:weight=1e-6`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.decoder.direction != self.task.direction:
            allowed = f"one with the task's direction, {self.task.direction!r}"
            raise InvalidValue("decoder", self.decoder.kind, allowed)
        for penalty in self.penalties:
            penalty.check(self.decoder)
        kinds = [penalty.kind for penalty in self.penalties]
        if repeated := [kind for kind in kinds if kinds.count(kind) > 1]:
            raise InvalidValue("penalties", repeated[0], "names that occur once")
        return self

    def with_remedy(self, remedy: Remedy | str) -> RunSpec:
        """Return the spec with a remedy, given as a record or as text.

        Examples
        --------
        >>> import recombine as rc
        >>> rc.RunSpec().with_remedy("additive").decoder
        AdditiveDecoder(kind='additive', base=CNN(kind='cnn', width=64, depth=4))
        >>> [str(penalty) for penalty in rc.RunSpec().with_remedy("hessian:weight=1e-6").penalties]
        ['hessian:weight=1e-06']
        """
        remedy = REMEDIES.parse(remedy)
        changed = remedy.apply(self)
        if not isinstance(self.decoder, UNetSpec) or isinstance(changed.decoder, UNetSpec):
            return changed
        if self.decoder.renderer is None:
            example = f"{self.decoder.kind}:renderer=mlp"
            allowed = f"given for remedy {remedy}, which replaces the decoder (for example {example})"
            raise InvalidValue("renderer", None, allowed)
        changed = remedy.apply(self.replace(decoder=self.decoder.renderer))  # the U-Net itself stays
        return changed.replace(decoder=self.decoder.replace(renderer=changed.decoder))

    def to_json(self) -> str:
        """Return the spec and the revision of the training code as they are stored, as JSON."""
        return canonical_json(self._stored())

    def _stored(self) -> dict[str, Any]:
        fields = {**self.model_dump(mode="json"), "revision": REVISION}
        penalties = {penalty["kind"]: penalty for penalty in fields.pop("penalties", ())}
        for kind in FIRST_PENALTIES:
            fields["recipe"][kind] = penalties.pop(kind, {"weight": 0.0})["weight"]
        return {**fields, **({"penalties": list(penalties.values())} if penalties else {})}

    @classmethod
    def from_stored(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a stored spec under their current names."""
        fields = with_penalties(with_present_names(fields))
        return {name: value for name, value in fields.items() if name != "revision"}

    @property
    def digest(self) -> str:
        """The run's key in a store, a digest of the spec and the revision of the training code."""
        return stored_key(self._stored())

    @property
    def interface(self) -> Interface:
        """Sizes of the decoder's input and output."""
        return Interface(self.task.block_sizes, self.task.image_shape)

    @property
    def total_steps(self) -> int:
        """Total number of optimiser steps."""
        return self.recipe.steps or self.recipe.total_steps(len(self.task.training_values(self.seed)))

    def module(self) -> StagedDecoder:
        """Return the network with its initial weights."""
        module = build_seeded(self.decoder, self.interface, stream_seed(self.seed, "weights"))
        for penalty in self.penalties:
            with seeded(stream_seed(self.seed, "auxiliary")):
                auxiliary = penalty.auxiliary(self.interface)
            if auxiliary is not None:
                module.add_module("auxiliary", auxiliary)
        return module

    def seeds(self, seeds: Iterable[int]) -> list[RunSpec]:
        """Return a copy of the spec for each seed; only the seeds are validated."""
        seeds = list(seeds)
        if wrong := [seed for seed in seeds if not 0 <= seed < SEEDS]:
            raise InvalidValue("seed", wrong[0], f"0 to {SEEDS - 1}")
        return [self.model_copy(update={"seed": int(seed)}) for seed in seeds]
