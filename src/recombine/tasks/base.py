"""A task: factor values to images, and which of them a network is trained on (§3.1 of the paper).

A task ties a renderer to a grid, an encoding, a hold-out and a training set. It never knows who decodes it.

Factor values are rows `(row, factor)`; NaN marks a factor that is **absent** from an example. An isolated-factor
example (a stripe, in the bump task) has every factor but one absent.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import torch
from jaxtyping import Bool, Float, Int
from pydantic import BeforeValidator, Field, PrivateAttr, SerializeAsAny, model_validator
from torch import Tensor

from recombine.checks import checked, whole_number
from recombine.encodings import AnyEncoding, Bump
from recombine.errors import InvalidValue, listed
from recombine.factors import FactorGrid
from recombine.frozen import Variant
from recombine.holdouts import AnyHoldout, Center, Holdout, unseen_values
from recombine.registry import Registry
from recombine.streams import stream
from recombine.tasks.training_sets import AnyTrainingRule, Draws, Each


class Examples(NamedTuple):
    """Inputs of a network and the outputs it should give."""

    inputs: Float[Tensor, "row ..."]
    targets: Float[Tensor, "row ..."]


WHICH = {"holdout", "training", "centers", "region", "isolated", "mixing", "allow_unseen"}
"""Fields that say which examples are trained on or held out."""


class Task(Variant):
    """Everything about the data. A subclass adds the renderer and its fields."""

    encoding: AnyEncoding = Bump()
    """How factor values are coded."""
    holdout: AnyHoldout = Center()
    """Which combinations are held out."""
    training: AnyTrainingRule = Draws()
    """Which of the kept combinations are trained on."""
    centers: Literal["integer", "real"] = "integer"
    """Training values on the grid, or anywhere between its ends."""
    region: Literal["kept", "whole"] = "kept"
    """Train on kept combinations only, or on the whole grid (then the held-out ones are only a region to look at)."""
    isolated: bool = False
    """Add every single factor value shown alone (all 2N stripes)."""
    mixing: Annotated[float, Field(ge=0.001, le=0.999)] | None = None
    """Share of isolated examples in an epoch, reached by repeating the rarer kind; none: each example once."""
    direction: Literal["decode", "encode"] = "decode"
    """`decode`: code to image. `encode`: image to code."""
    allow_unseen: bool = False
    """Permit a hold-out that removes a factor value altogether."""

    position_factors: ClassVar[tuple[str, ...]] = ("x", "y")
    """Factors that say where in the image (column, row) its extreme pixel belongs; none where nothing does."""

    streamed: ClassVar[bool] = False
    """Whether examples are read, row by row, from a place that holds more of them than memory does."""

    _given_holdout: Holdout | None = PrivateAttr(default=None)
    """The hold-out before bounds that follow the grid's size were written out; `replace` begins with it again."""

    # -- what a renderer supplies ------------------------------------------------------------------------------

    @abstractmethod
    def factor_grid(self) -> FactorGrid:
        """The factors and their values."""

    @property
    @abstractmethod
    def image_shape(self) -> tuple[int, int]:
        """Rows and columns of an image."""

    @property
    @abstractmethod
    def background(self) -> float:
        """The grey value of an image with nothing on it."""

    @abstractmethod
    def render(self, values: Float[Tensor, "row factor"]) -> Float[Tensor, "row y x"]:
        """The image of each row of factor values; a NaN factor is absent."""

    def resolved_holdout(self) -> Holdout:
        """The hold-out with every bound written out; a task may have a hold-out of its own where none is given."""
        return self.holdout.resolved(self.grid)

    def replace(self, /, **fields: Any) -> Self:
        """A copy with some fields changed and validated; bounds of the hold-out that were not given follow the grid."""
        return super().replace(**{"holdout": self._given_holdout or self.holdout, **fields})

    # -- derived -----------------------------------------------------------------------------------------------

    @cached_property
    def grid(self) -> FactorGrid:
        """The factor grid."""
        return self.factor_grid()

    @cached_property
    def rendering_key(self) -> str:
        """The fields that decide the grid and how examples look, not which of them are trained on, as JSON.

        Tasks with equal keys have the same examples for the same factor values, and the same blank one.
        """
        return self.model_dump_json(exclude=WHICH)

    @cached_property
    def present(self) -> Bool[Tensor, " point"]:
        """For each grid point, whether there is an example of it: data may lack some combinations."""
        return torch.ones(self.grid.size, dtype=torch.bool)

    @cached_property
    def held_out(self) -> Bool[Tensor, " point"]:
        """For each grid point, whether it is held out."""
        return self.holdout.mask(self.grid).flatten() & self.present

    def evaluated(self) -> Int[Tensor, " point"] | None:
        """The grid points at which trained networks are evaluated; none: all of them."""
        return None

    @property
    def code_sizes(self) -> tuple[int, ...]:
        """Neurons of each factor's code."""
        return tuple(self.encoding.size(factor) for factor in self.grid.factors)

    @checked
    def codes(self, values: Float[Tensor, "row factor"]) -> Float[Tensor, "row code"]:
        """The factors' codes side by side; zeros for an absent factor."""
        self.check_columns(values)
        blocks = [self.encoding.present(values[:, k], factor) for k, factor in enumerate(self.grid.factors)]
        return torch.cat(blocks, dim=-1)

    def examples(self, values: Float[Tensor, "row factor"]) -> Examples:
        """Inputs and targets for rows of factor values, in the task's direction."""
        codes, images = self.codes(values), self.render(values)
        if self.direction == "decode":
            return Examples(codes.float(), images.float())
        return Examples(images[:, None].float(), codes.float())

    @cached_property
    def blank(self) -> Float[Tensor, " ..."]:
        """The output that ignores the input: an empty image, or the mean code over the grid."""
        if self.direction == "decode":
            return torch.full(self.image_shape, self.background)
        return self.codes(self.grid.points).mean(dim=0).float()

    def isolated_values(self) -> Float[Tensor, "row factor"]:
        """Every single factor value with all other factors absent, factor by factor."""
        blocks = []
        for k, factor in enumerate(self.grid.factors):
            block = torch.full((factor.count, len(self.grid.factors)), torch.nan, dtype=torch.float64)
            block[:, k] = factor.values
            blocks.append(block)
        return torch.cat(blocks)

    def check_columns(self, values: Float[Tensor, "row factor"]) -> None:
        """Refuse rows that do not have one value for each factor."""
        if values.shape[1] != len(self.grid.factors):
            raise InvalidValue("values", values, f"rows of one value for each of {listed(self.grid.names)}")

    def training_values(self, seed: int) -> Float[Tensor, "row factor"]:
        """The training set of one seed, one row per example of an epoch."""
        whole_number("seed", seed, at_least=0)
        usable = self._usable()
        combined = self._real_values(usable, seed) if self.centers == "real" else self._grid_values(usable, seed)
        if not self.isolated:
            return combined
        alone = self.isolated_values()
        if self.mixing is not None:
            generator = stream(seed, "mixing")
            count = round(len(combined) * self.mixing / (1 - self.mixing))
            if count >= len(alone):
                alone = _repeated(alone, count, generator)
            else:
                combined = _repeated(combined, round(len(alone) * (1 - self.mixing) / self.mixing), generator)
        return torch.cat([alone, combined])

    def _usable(self) -> Bool[Tensor, " point"]:
        return self.present if self.region == "whole" else self.present & ~self.held_out

    def _grid_values(self, usable: Bool[Tensor, " point"], seed: int) -> Float[Tensor, "row factor"]:
        points = self.grid.points[usable]
        return points[self.training.choose(len(points), stream(seed, "training set"))]

    def _real_values(self, usable: Bool[Tensor, " point"], seed: int) -> Float[Tensor, "row factor"]:
        """Uniform draws over the part of the continuous domain whose nearest grid points are usable."""
        count = self.training.count(int(usable.sum()))
        low = torch.tensor([factor.low for factor in self.grid.factors], dtype=torch.float64)
        high = torch.tensor([factor.high for factor in self.grid.factors], dtype=torch.float64)
        generator, values = stream(seed, "training set"), torch.empty(0, len(low), dtype=torch.float64)
        while len(values) < count:
            draws = low + (high - low) * torch.rand(2 * count, len(low), dtype=torch.float64, generator=generator)
            values = torch.cat([values, draws[usable[self.grid.nearest(draws)]]])
        return values[:count]

    # -- mistakes ----------------------------------------------------------------------------------------------

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self._given_holdout is None:  # a task inside a spec is validated once more
            self._given_holdout = self.holdout
        object.__setattr__(self, "holdout", self.resolved_holdout())
        unkept = self.holdout.mask(self.grid) | ~self.present.reshape(self.grid.shape)
        if not self.allow_unseen and (unseen := unseen_values(unkept, self.grid)):
            some = ", ".join(unseen[:3]) + (", …" if len(unseen) > 3 else "")
            raise InvalidValue(
                "holdout",
                str(self.holdout),
                f"masks that leave every factor value in training (this removes {some}), or allow_unseen",
            )
        if self.centers == "real" and not self.encoding.differentiable:
            raise InvalidValue("encoding", self.encoding.kind, "an encoding of real values, since centers is 'real'")
        if self.centers == "real" and isinstance(self.training, Each):
            raise InvalidValue("training", str(self.training), "draws, pick or percent, since centers is 'real'")
        if self.isolated and not self.encoding.population:
            raise InvalidValue(
                "encoding", self.encoding.kind, "a population code, since isolated leaves factors absent"
            )
        if self.mixing is not None and not self.isolated:
            raise InvalidValue("mixing", self.mixing, "nothing unless isolated is true")
        usable = int(self._usable().sum())
        if usable == 0:
            raise InvalidValue("holdout", str(self.holdout), "a mask that keeps at least one combination")
        if self.training.count(usable) == 0 and not self.isolated:
            raise InvalidValue("training", str(self.training), "a rule that leaves at least one training example")
        if self.mixing is not None and self.training.count(usable) == 0:
            raise InvalidValue("mixing", self.mixing, "nothing when there are no combinations to mix with")
        return self


def _repeated(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """The rows over and over, the last time a random part of them, `count` in all."""
    times, rest = divmod(count, len(rows))
    return torch.cat([rows.repeat(times, 1), rows[torch.randperm(len(rows), generator=generator)[:rest]]])


TASKS: Registry[Task] = Registry("task", Task)
AnyTask = Annotated[SerializeAsAny[Task], BeforeValidator(TASKS.parse)]
