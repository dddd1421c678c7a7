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

from recombine.decoders import CNN, AnyDecoder, Interface, StagedDecoder, build_seeded, seeded
from recombine.errors import InvalidValue
from recombine.keys import REVISION, canonical_json, stored_key, with_present_names
from recombine.records import ADDED, Frozen
from recombine.remedies import REMEDIES, AnyPenalty, Remedy
from recombine.streams import stream_seed
from recombine.tasks import AnyTask, BumpTask

Precision = Literal["float32", "tf32", "bf16"]
FIRST_PENALTIES = ("entropy", "variance")
"""Penalties whose weights are stored with the recipe, where they were before there were others."""
LONGEST = 10**9
"""Upper bound of epochs and steps."""
SEEDS = 2**31
"""Seeds are below this."""
_Share = Annotated[float, Field(ge=0, lt=1)]
_Weight = Annotated[float, Field(ge=0)]


class Recipe(Frozen):
    """How a member is trained: AdamW on the mean squared error over pixels, plus terms.

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
    penalties: Annotated[tuple[AnyPenalty, ...], ADDED] = ()
    """Loss terms of remedies, as `hessian:weight=0.1`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.decoder.direction != self.task.direction:
            raise InvalidValue(
                "decoder", self.decoder.kind, f"one whose direction is {self.task.direction!r}, like the task's"
            )
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
        >>> [str(penalty) for penalty in rc.RunSpec().with_remedy("hessian:weight=0.1").penalties]
        ['hessian:weight=0.1']
        """
        return REMEDIES.parse(remedy).apply(self)

    def to_json(self) -> str:
        """The spec and the revision of the training code, as a store keeps them."""
        return canonical_json(self._stored())

    def _stored(self) -> dict[str, Any]:
        fields = {**self.model_dump(mode="json"), "revision": REVISION}
        penalties = {penalty["kind"]: penalty for penalty in fields.pop("penalties", ())}
        for kind in FIRST_PENALTIES:
            fields["recipe"][kind] = penalties.pop(kind, {"weight": 0.0})["weight"]
        return {**fields, **({"penalties": list(penalties.values())} if penalties else {})}

    @classmethod
    def from_stored(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """The spec's fields as they are named now, from what any edition of a store keeps, of any revision."""
        fields = {name: value for name, value in with_present_names(fields).items() if name != "revision"}
        if isinstance(recipe := fields.get("recipe"), dict):
            fields["recipe"] = {name: value for name, value in recipe.items() if name not in FIRST_PENALTIES}
            first = [{"kind": kind, "weight": recipe[kind]} for kind in FIRST_PENALTIES if recipe.get(kind)]
            fields["penalties"] = [*first, *fields.get("penalties", ())]
        return fields

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
        module = build_seeded(self.decoder, self.interface, stream_seed(self.seed, "weights"))
        for penalty in self.penalties:
            with seeded(stream_seed(self.seed, "auxiliary")):
                auxiliary = penalty.auxiliary(self.interface)
            if auxiliary is not None:
                module.add_module("auxiliary", auxiliary)
        return module

    def seeds(self, seeds: Iterable[int]) -> list[RunSpec]:
        """The same run for several seeds; validated no further, as nothing else depends on the seed."""
        seeds = list(seeds)
        if wrong := [seed for seed in seeds if not 0 <= seed < SEEDS]:
            raise InvalidValue("seed", wrong[0], f"0 to {SEEDS - 1}")
        return [self.model_copy(update={"seed": int(seed)}) for seed in seeds]
