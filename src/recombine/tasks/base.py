"""A task: factor values to images, and which of them a network is trained on (§3.1 of the paper).

A task ties a renderer to a grid, an encoding, a hold-out and a training set. It never knows who decodes it.

Factor values are rows `(row, factor)`; NaN marks a factor that is **absent** from an example. An isolated-factor
example (a stripe, in the bump task) has every factor but one, or but a few, absent (`training_sets.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from itertools import combinations
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Never, Self

import torch
from jaxtyping import Bool, Float
from pydantic import BeforeValidator, Field, PrivateAttr, SerializeAsAny, model_validator
from torch import Tensor

from recombine.encodings import AnyEncoding, Bump, Encoding
from recombine.errors import InvalidValue, listed
from recombine.factors import Factor, FactorGrid
from recombine.holdouts import AnyHoldout, Center, Holdout, HoldoutSummary, SomeFactors
from recombine.records import ADDED, Registry, Variant
from recombine.streams import stream
from recombine.tasks.training_sets import AnyTrainingRule, Draws, Each, averaged_images, isolated_rows


class Examples(NamedTuple):
    """Inputs of a network and the outputs it should give."""

    inputs: Float[Tensor, "row ..."]
    targets: Float[Tensor, "row ..."]


KEPT = {"holdout", "region"}
"""Fields that say which combinations may be trained on."""
WHICH = KEPT | {
    "training", "centers", "isolated", "isolated_factors", "isolated_together", "mixing", "allow_unseen"
}  # fmt: skip
"""Fields that say which examples are trained on or held out."""
ENUMERATED = 10**5
"""Points of a grid whose codes are held in memory together."""


class Task(Variant):
    """Everything about the data. A subclass adds the renderer and its fields.

    Examples
    --------
    >>> import recombine as rc
    >>> task = rc.TASKS.parse("bump:size=8")
    >>> task.grid.shape, task.code_sizes, task.image_shape
    ((8, 8), (8, 8), (8, 8))
    >>> task.examples(task.grid.points[:3]).targets.shape
    torch.Size([3, 8, 8])
    """

    encoding: AnyEncoding = Bump()
    """How factor values are coded; each in its own way with mixed:x=bump:angle=polar."""
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
    isolated_factors: Annotated[SomeFactors, ADDED] = None
    """Factors that isolated examples show, by name or place, as x,y. Default: all factors."""
    isolated_together: Annotated[int, Field(ge=1, le=64), ADDED] = 1
    """How many factors an isolated example shows: 1 for each alone, 2 for every pair."""
    mixing: Annotated[float, Field(ge=0.001, le=0.999)] | None = None
    """Share of isolated examples in an epoch, reached by repeating the rarer kind; none: each example once."""
    direction: Literal["decode", "encode"] = "decode"
    """`decode`: code to image. `encode`: image to code."""
    allow_unseen: bool = False
    """Permit a hold-out that removes a factor value altogether."""

    position_factors: ClassVar[tuple[str, ...]] = ("x", "y")
    """Factors that say where in the image (column, row) its extreme pixel belongs; none where nothing does."""
    optional_factors: ClassVar[tuple[str, ...] | None] = None
    """Factors that an image can be drawn without; None: every one. Over any other, isolated examples are means."""

    _given_encoding: Encoding | None = PrivateAttr(default=None)
    """The encoding before what follows the factors' forms was written out."""
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
    def image_shape(self) -> tuple[int, ...]:
        """Rows and columns of an image; of a colour image channels, rows and columns."""

    @property
    @abstractmethod
    def background(self) -> float:
        """The value of an image with nothing on it, in every channel."""

    @abstractmethod
    def render(self, values: Float[Tensor, "row factor"]) -> Float[Tensor, "row *channel y x"]:
        """The image of each row of factor values; a NaN factor, which must be one of the optional ones, is absent."""

    def resolved_holdout(self) -> Holdout:
        """The hold-out with every bound written out; a task may have a hold-out of its own where none is given."""
        return self.holdout.resolved(self.grid)

    def replace(self, /, **fields: Any) -> Self:
        """A copy with some fields changed and validated; bounds of the hold-out that were not given follow the grid."""
        given = {"holdout": self._given_holdout or self.holdout, "encoding": self._given_encoding or self.encoding}
        return super().replace(**{**given, **fields})

    # -- derived -----------------------------------------------------------------------------------------------

    @cached_property
    def grid(self) -> FactorGrid:
        """The factor grid."""
        return self.factor_grid()

    @cached_property
    def rendering_key(self) -> str:
        """The fields that decide the grid and how examples look, not which of them are trained on, as JSON.

        Tasks with equal keys have the same examples for the same factor values, and the same blank one. Where examples
        are means over the combinations that may be trained on, they depend on those.
        """
        return self.model_dump_json(exclude=WHICH - KEPT if self.isolated and self.fixed_factors else WHICH)

    @cached_property
    def fixed_factors(self) -> tuple[int, ...]:
        """Places of the factors that no image can be drawn without."""
        optional = self.grid.names if self.optional_factors is None else self.optional_factors
        return tuple(axis for axis, name in enumerate(self.grid.names) if name not in optional)

    @cached_property
    def present(self) -> Bool[Tensor, " point"]:
        """For each grid point, whether there is an example of it: data may lack some combinations."""
        return torch.ones(self.grid.size, dtype=torch.bool)

    @cached_property
    def held_out(self) -> Bool[Tensor, " point"]:
        """For each grid point, whether it is held out."""
        return self.holdout.mask(self.grid).flatten() & self.present

    @cached_property
    def holdout_summary(self) -> HoldoutSummary:
        """How many combinations are kept and held out, and which single values are never seen."""
        return HoldoutSummary.of(self.held_out, self.grid, self.present)

    @property
    def code_sizes(self) -> tuple[int, ...]:
        """Neurons of each factor's code."""
        return tuple(self.encoding.size(factor) for factor in self.grid.factors)

    def codes(self, values: Float[Tensor, "row factor"]) -> Float[Tensor, "row code"]:
        """The factors' codes side by side; zeros for an absent factor."""
        self.check_columns(values)
        blocks = [self.encoding.present(values[:, k], factor) for k, factor in enumerate(self.grid.factors)]
        return torch.cat(blocks, dim=-1)

    def examples(self, values: Float[Tensor, "row factor"]) -> Examples:
        """Inputs and targets for rows of factor values, in the task's direction."""
        codes, images = self.codes(values), self.images(values)
        if self.direction == "decode":
            return Examples(codes.float(), images.float())
        planes = images[:, None] if images.ndim == 3 else images  # a network reads channels, be it only one
        return Examples(planes.float(), codes.float())

    def images(self, values: Float[Tensor, "row factor"]) -> Float[Tensor, "row ..."]:
        """The image of each row of factor values; the mean over a factor that is absent and cannot be left out."""
        fixed = list(self.fixed_factors)
        if not fixed or not bool(torch.isnan(values[:, fixed]).any()):
            return self.render(values)
        return averaged_images(values, self.grid, self._usable(), fixed, self.render)

    @cached_property
    def blank(self) -> Float[Tensor, " ..."]:
        """The output that ignores the input: an empty image, or the mean code over the grid."""
        if self.direction == "decode":
            return torch.full(self.image_shape, self.background)
        if self.grid.size <= ENUMERATED:
            return self.codes(self.grid.points).mean(dim=0).float()
        means = [self.encoding.code(factor.values, factor).mean(dim=0) for factor in self.grid.factors]
        return torch.cat(means).float()  # the same but for rounding

    def isolated_values(self) -> Float[Tensor, "row factor"]:
        """Every single factor value with all other factors absent, factor by factor; or groups of factors."""
        return isolated_rows(self.grid, self._usable(), self._shown_groups(), self.fixed_factors)

    def _shown_groups(self) -> list[tuple[int, ...]]:
        """The factors that isolated examples show together."""
        return list(combinations(sorted(self.grid.axes(self.isolated_factors)), self.isolated_together))

    def check_columns(self, values: Float[Tensor, "row factor"]) -> None:
        """Refuse rows that do not have one value for each factor."""
        if values.shape[1] != len(self.grid.factors):
            raise InvalidValue("values", values, f"rows of one value for each of {listed(self.grid.names)}")

    def training_values(self, seed: int) -> Float[Tensor, "row factor"]:
        """The training set of one seed, one row per example of an epoch."""
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
        places = torch.nonzero(usable).flatten()
        return self.grid.rows(places[self.training.choose(len(places), stream(seed, "training set"))])

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
            self._given_holdout, self._given_encoding = self.holdout, self.encoding
        object.__setattr__(self, "holdout", self.resolved_holdout())
        object.__setattr__(self, "encoding", self.encoding.resolved(self.grid))
        self._check_holdout()
        self._check_centers()
        self._check_isolated()
        usable = int(self._usable().sum())
        if usable == 0:
            raise InvalidValue("holdout", str(self.holdout), "a mask that keeps at least one combination")
        if self.training.count(usable) == 0 and not self.isolated:
            raise InvalidValue("training", str(self.training), "a rule that leaves at least one training example")
        if self.mixing is not None and self.training.count(usable) == 0:
            raise InvalidValue("mixing", self.mixing, "left out when there are no combinations to mix with")
        return self

    def _check_holdout(self) -> None:
        if not self.allow_unseen and (unseen := self.holdout_summary.unseen):
            some = ", ".join(unseen[:3]) + (", …" if len(unseen) > 3 else "")
            raise InvalidValue(
                "holdout",
                str(self.holdout),
                f"a mask that leaves every factor value in training (this removes {some}), unless allow_unseen is true",
            )

    def _check_centers(self) -> None:
        if self.centers != "real":
            return
        for factor in self.grid.factors:
            if factor.form == "category":
                allowed = f"integer, since there is nothing between two values of {factor.name}"
                raise InvalidValue("centers", self.centers, allowed)
            if not self.encoding.of(factor).differentiable:
                self._refuse_encoding(factor, "an encoding of real values, since centers is 'real'")
        if isinstance(self.training, Each):
            raise InvalidValue("training", str(self.training), "draws, pick or percent, since centers is 'real'")

    def _check_isolated(self) -> None:
        if not self.isolated:
            for field in ("isolated_factors", "isolated_together", "mixing"):
                if (value := getattr(self, field)) != type(self).model_fields[field].default:
                    raise InvalidValue(field, value, "left out unless isolated is true")
            return
        try:
            shown = tuple(self.grid.names[axis] for axis in sorted(self.grid.axes(self.isolated_factors)))
        except InvalidValue as error:
            raise InvalidValue("isolated_factors", error.value, error.allowed) from None
        object.__setattr__(self, "isolated_factors", None if shown == self.grid.names else shown)
        largest = min(len(shown), len(self.grid.names) - 1)
        if largest == 0:
            raise InvalidValue("isolated", True, "false: there is a single factor, and none to leave out")
        if self.isolated_together > largest:
            raise InvalidValue("isolated_together", self.isolated_together, f"1 to {largest}, so that some are absent")
        groups = self._shown_groups()
        for axis, factor in enumerate(self.grid.factors):
            if not all(axis in group for group in groups) and not self.encoding.of(factor).population:
                self._refuse_encoding(factor, "a population code, since isolated leaves factors absent")

    def _refuse_encoding(self, factor: Factor, allowed: str) -> Never:
        part = self.encoding.of(factor)
        field = "encoding" if part is self.encoding else f"encoding.{factor.name}"
        raise InvalidValue(field, part.kind, allowed)


def _repeated(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """The rows over and over, the last time a random part of them, `count` in all."""
    times, rest = divmod(count, len(rows))
    return torch.cat([rows.repeat(times, 1), rows[torch.randperm(len(rows), generator=generator)[:rest]]])


TASKS: Registry[Task] = Registry("task", Task)
AnyTask = Annotated[SerializeAsAny[Task], BeforeValidator(TASKS.parse)]
