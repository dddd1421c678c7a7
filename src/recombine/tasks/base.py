"""Tasks: a renderer from factor values to images, plus a factor grid, an encoding, a hold-out and a training set.

Factor values are rows `(row, factor)`; NaN marks a factor that is **absent** from an example. An isolated-factor
example shows a group of factors, by default a single one (a stripe in the bump task); all others are absent. A single
factor is shown at all its values; a group of two or more is shown only in combinations that may be trained on, so that
no held-out pair is revealed.

If an image cannot be drawn without a factor (a digit always has some angle), the example is the **mean image** over
that factor. Only combinations that may be trained on are averaged, so that no held-out image contributes. If there are
more than `MOST_AVERAGED`, a fixed random sample is used. A value with no such combination has no example.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from itertools import combinations
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Never, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from pydantic import BeforeValidator, Field, PrivateAttr, SerializeAsAny, model_validator
from torch import Tensor

from recombine.encodings import AnyEncoding, Bump, Encoding
from recombine.errors import InvalidValue, listed
from recombine.factors import Factor, FactorGrid
from recombine.holdouts import AnyHoldout, Center, Holdout, HoldoutSummary, Nothing, SomeFactors, axes_of
from recombine.records import ADDED, OPENING, Registry, Variant
from recombine.streams import stream
from recombine.tasks.training_sets import AnyTrainingRule, Draws, Each, repeated


class Examples(NamedTuple):
    """A network's inputs and targets."""

    inputs: Float[Tensor, "row ..."]
    targets: Float[Tensor, "row ..."]


KEPT = {"holdout", "region", "excluded"}
"""Fields that determine which combinations may be trained on."""
WHICH = KEPT | {
    "training", "centers", "isolated", "isolated_factors", "isolated_together", "mixing", "allow_unseen",
    "excluded", "blocks",
}  # fmt: skip
"""Fields that determine which examples are trained on or held out."""
MOST_AVERAGED = 4096
"""Maximum number of images averaged into one example."""
PIXELS = 2**24
"""Maximum number of pixels drawn at once for averages."""


class Task(Variant):
    """Base class of tasks; a subclass adds a renderer and its fields.

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
    """Encoding of the factor values; mixed:x=bump:angle=polar sets one encoding per factor."""
    holdout: AnyHoldout = Center()
    """Combinations held out of training."""
    training: AnyTrainingRule = Draws()
    """How to choose the training set from the combinations that are not held out."""
    centers: Literal["integer", "real"] = "integer"
    """Whether training values lie on the grid (integer) or anywhere in its range (real)."""
    region: Literal["kept", "whole"] = "kept"
    """Train only on combinations that are not held out (kept), or on all, with the hold-out only evaluated (whole)."""
    isolated: bool = False
    """For each factor value, add a training example that shows it alone (2N stripes for N × N bump images)."""
    isolated_factors: Annotated[SomeFactors, ADDED] = None
    """Factors shown in isolated examples, by name or position, e.g. x,y. Default: all factors."""
    isolated_together: Annotated[int, Field(ge=1, le=64), ADDED] = 1
    """Number of factors shown in each isolated example: 1 for single factors, 2 for pairs."""
    mixing: Annotated[float, Field(ge=0.001, le=0.999)] | None = None
    """Fraction of isolated examples in an epoch, reached by repeating the rarer kind. Default: no repetition."""
    direction: Literal["decode", "encode"] = "decode"
    """Direction of the mapping: decode (code to image) or encode (image to code)."""
    allow_unseen: bool = False
    """Allow hold-outs that remove some factor values from training entirely."""
    excluded: Annotated[AnyHoldout, ADDED] = Nothing()
    """Combinations left out altogether: neither trained on nor evaluated."""
    blocks: Annotated[tuple[Annotated[int, Field(ge=1)], ...] | None, ADDED] = None
    """Numbers of consecutive factors that belong together, such as 5,5 for two sprites: remedies that know factors
    treat each block as one. Default: every factor is a block."""

    position_factors: ClassVar[tuple[str, ...]] = ("x", "y")
    """Factors that specify the column and row of the brightest (or darkest) pixel, if any."""
    known_by_image: ClassVar[bool] = False
    """Whether an output counts as right if the nearest image of the grid is its own, for tasks without positions."""
    optional_factors: ClassVar[tuple[str, ...] | None] = None
    """Factors that may be absent from an image; None means all. Isolated examples average over any other factor."""
    streamed: ClassVar[bool] = False
    """Whether examples are read from a file that may be larger than memory."""

    # Values before `resolved` fills in those that depend on the grid; `replace` starts from these.
    _given_encoding: Encoding | None = PrivateAttr(default=None)
    _given_holdout: Holdout | None = PrivateAttr(default=None)

    @abstractmethod
    def factor_grid(self) -> FactorGrid:
        """Return the factors and their values."""

    @property
    @abstractmethod
    def image_shape(self) -> tuple[int, ...]:
        """`(y, x)`, or `(channel, y, x)` for colour."""

    @property
    def background(self) -> float:
        """Pixel value of an empty image."""
        return 0.0

    @abstractmethod
    def render(self, values: Float[Tensor, "row factor"]) -> Float[Tensor, "row *channel y x"]:
        """Return an image for each row of factor values; NaN marks an absent factor, which must be optional."""

    def is_right(self, outputs: Tensor, values: Float[Tensor, "row factor"]) -> Tensor:
        """Return whether each output counts as right, for a task without positions; NaN if this is not scored."""
        return torch.full((len(outputs),), torch.nan)

    def resolved_holdout(self) -> Holdout:
        """Return the hold-out with every bound filled in; a task may override the default bounds."""
        return self.holdout.resolved(self.grid)

    def replace(self, /, **fields: Any) -> Self:
        """Return a copy with some fields changed; the hold-out's default bounds adapt to the new grid."""
        given = {"holdout": self._given_holdout or self.holdout, "encoding": self._given_encoding or self.encoding}
        return super().replace(**{**given, **fields})

    @cached_property
    def grid(self) -> FactorGrid:
        """The factor grid."""
        return self.factor_grid()

    @cached_property
    def rendering_key(self) -> str:
        """JSON of the fields that determine the grid and what examples look like, but not which of them are trained on.

        Tasks with equal keys have equal examples at equal factor values. If examples are averages over the combinations
        that may be trained on, the hold-out is included.
        """
        return self.model_dump_json(exclude=WHICH - KEPT if self.isolated and self.fixed_factors else WHICH)

    @cached_property
    def fixed_factors(self) -> tuple[int, ...]:
        """Positions of the factors that must be present in every image."""
        optional = self.grid.names if self.optional_factors is None else self.optional_factors
        return tuple(axis for axis, name in enumerate(self.grid.names) if name not in optional)

    @cached_property
    def present(self) -> Bool[Tensor, " point"]:
        """Mask of grid points that have an example and are not excluded; datasets may lack some combinations."""
        return ~self.left_out

    @cached_property
    def left_out(self) -> Bool[Tensor, " point"]:
        """Mask of excluded grid points."""
        return self.excluded.mask(self.grid).flatten()

    @cached_property
    def held_out(self) -> Bool[Tensor, " point"]:
        """Mask of held-out grid points."""
        return self.holdout.mask(self.grid).flatten() & self.present

    @cached_property
    def holdout_summary(self) -> HoldoutSummary:
        """Numbers of kept and held-out combinations, and factor values that are never seen."""
        return HoldoutSummary.of(self.held_out, self.grid, self.present)

    @property
    def code_sizes(self) -> tuple[int, ...]:
        """Size of each factor's code."""
        return tuple(self.encoding.size(factor) for factor in self.grid.factors)

    @property
    def block_sizes(self) -> tuple[int, ...]:
        """Size of the code of each block of factors."""
        sizes = self.code_sizes
        return tuple(sum(sizes[axis] for axis in block) for block in axes_of(self.blocks, self.grid))

    def codes(self, values: Float[Tensor, "row factor"]) -> Float[Tensor, "row code"]:
        """Return the concatenated codes of all factors, with zeros for absent ones."""
        self.check_columns(values)
        blocks = [self.encoding.present(values[:, k], factor) for k, factor in enumerate(self.grid.factors)]
        return torch.cat(blocks, dim=-1)

    def examples(self, values: Float[Tensor, "row factor"]) -> Examples:
        """Return inputs and targets for rows of factor values, in the task's direction."""
        codes, images = self.codes(values), self.images(values)
        if self.direction == "decode":
            return Examples(codes.float(), images.float())
        planes = images[:, None] if images.ndim == 3 else images  # an encoder expects a channel axis
        return Examples(planes.float(), codes.float())

    def images(self, values: Float[Tensor, "row factor"]) -> Float[Tensor, "row ..."]:
        """Return an image for each row of factor values, averaged over absent factors that are not optional."""
        fixed = list(self.fixed_factors)
        if not fixed or not bool(torch.isnan(values[:, fixed]).any()):
            return self.render(values)
        distinct, inverse = torch.unique(values.nan_to_num(nan=torch.inf), dim=0, return_inverse=True)
        distinct = torch.where(distinct.isinf(), torch.nan, distinct)
        lowest = torch.tensor([factor.low for factor in self.grid.factors], dtype=values.dtype)
        nearest = self.grid.positions(self.grid.nearest(torch.where(distinct.isnan(), lowest, distinct))).tolist()
        drawn, owners, weights = [], [], []
        for owner, (row, position) in enumerate(zip(distinct, nearest, strict=True)):
            rows, weight = self._completions(row, position)
            drawn.append(rows)
            weights.append(weight / weight.sum())
            owners.append(torch.full((len(rows),), owner))
        rows, owner_of, weight_of = torch.cat(drawn), torch.cat(owners), torch.cat(weights)
        one = self.render(rows[:1])
        total, step = one.new_zeros(len(distinct), *one.shape[1:]), max(1, PIXELS // one.numel())
        for part in torch.arange(len(rows)).split(step):
            images = self.render(rows[part])
            weighted = images * weight_of[part].to(images).reshape(-1, *[1] * (images.ndim - 1))
            total.index_add_(0, owner_of[part], weighted)
        return total[inverse]

    def _completions(
        self, row: Float[Tensor, " factor"], position: Sequence[int]
    ) -> tuple[Float[Tensor, "row factor"], Float[Tensor, " row"]]:
        """Return rows in which absent non-optional factors have values, and the number of usable points of each row.

        `position` is the row's position on the grid along the factors that are present.
        """
        grid, absent = self.grid, torch.isnan(row).tolist()
        filled = [axis for axis in self.fixed_factors if absent[axis]]
        if not filled:
            return row[None], torch.ones(1, dtype=torch.float64)
        free = FactorGrid(tuple(grid.factors[axis] for axis in filled))
        slices = [slice(None) if gone else slice(at, at + 1) for gone, at in zip(absent, position, strict=True)]
        counts = self._usable_by(filled, tuple(slices)).sum(dim=1)
        chosen = torch.nonzero(counts).flatten()
        if not len(chosen):
            raise InvalidValue("values", row.tolist(), "values of combinations that may be trained on")
        if len(chosen) > MOST_AVERAGED:  # the sample depends only on the row
            shown = ", ".join(f"{name}={value:g}" for name, value in zip(grid.names, row.tolist(), strict=True))
            order = torch.randperm(len(chosen), generator=stream(0, f"mean over the absent factors of {shown}"))
            chosen = chosen[order[:MOST_AVERAGED].sort().values]
        rows = row.expand(len(chosen), -1).clone()
        rows[:, filled] = free.rows(chosen)
        return rows, counts[chosen].double()

    @cached_property
    def blank(self) -> Float[Tensor, " ..."]:
        """Baseline output that ignores the input: an empty image, or the mean code over the grid."""
        if self.direction == "decode":
            return torch.full(self.image_shape, self.background)
        if self.grid.size <= 10**5:
            return self.codes(self.grid.points).mean(dim=0).float()
        means = [self.encoding.code(factor.values, factor).mean(dim=0) for factor in self.grid.factors]
        return torch.cat(means).float()  # equal up to rounding, without computing all codes

    def isolated_values(self) -> Float[Tensor, "row factor"]:
        """Return rows with every value of one factor (or group of factors) and all other factors absent."""
        blocks = []
        for group in self._shown_groups():
            shown = FactorGrid(tuple(self.grid.factors[axis] for axis in group))
            block = torch.full((shown.size, len(self.grid.factors)), torch.nan, dtype=torch.float64)
            block[:, list(group)] = shown.points
            if len(group) > 1 or set(self.fixed_factors) - set(group):
                block = block[self._usable_by(group).any(dim=1)]
            blocks.append(block)
        return torch.cat(blocks)

    def _shown_groups(self) -> list[tuple[int, ...]]:
        """Return the groups of factors shown in isolated examples."""
        return list(combinations(sorted(self.grid.axes(self.isolated_factors)), self.isolated_together))

    def check_columns(self, values: Float[Tensor, "row factor"]) -> None:
        """Raise an error unless rows have one value for each factor."""
        if values.shape[1] != len(self.grid.factors):
            raise InvalidValue("values", values, f"rows with one value for each of {listed(self.grid.names)}")

    def training_images(self, seed: int) -> int:
        """Return the number of distinct images in the training set for a seed."""
        rows = self.training_values(seed).nan_to_num(nan=torch.inf).numpy()  # NaN is not equal to itself
        return len(np.unique(rows, axis=0))

    def training_values(self, seed: int) -> Float[Tensor, "row factor"]:
        """Return the training set for a seed, with one row per example in an epoch."""
        if self.centers == "real":
            combined = self._real_values(seed)
        else:
            combined = self.available_values(self.training.choose(self.available, stream(seed, "training set")))
        if not self.isolated:
            return combined
        alone = self.isolated_values()
        if self.mixing is not None:
            generator = stream(seed, "mixing")
            count = round(len(combined) * self.mixing / (1 - self.mixing))
            if count >= len(alone):
                alone = repeated(alone, count, generator)
            else:
                combined = repeated(combined, round(len(alone) * (1 - self.mixing) / self.mixing), generator)
        return torch.cat([alone, combined])

    @cached_property
    def usable(self) -> Bool[Tensor, " point"]:
        """Mask of grid points that may be trained on."""
        return self.present if self.region == "whole" else self.present & ~self.held_out

    @property
    def available(self) -> int:
        """Number of examples that may be trained on, before any are drawn."""
        return int(self.usable.sum())

    def available_values(self, indices: Int[Tensor, " row"]) -> Float[Tensor, "row factor"]:
        """Return the factor values of some of the examples that may be trained on."""
        return self.grid.rows(torch.nonzero(self.usable).flatten()[indices])

    def _usable_by(self, axes: Sequence[int], part: tuple[slice, ...] = ()) -> Bool[Tensor, "value other"]:
        """Return which points (in a part of the grid) may be trained on, with a row per combination of some factors."""
        others = [axis for axis in range(len(self.grid.shape)) if axis not in axes]
        usable = self.usable.reshape(self.grid.shape)[part].permute(*axes, *others)
        return usable.reshape(usable.shape[: len(axes)].numel(), -1)

    def _real_values(self, seed: int) -> Float[Tensor, "row factor"]:
        """Return uniform draws from the region of the continuous domain whose nearest grid points are usable."""
        count = self.training.count(self.available)
        low, high = torch.tensor([(own.low, own.high) for own in self.grid.factors], dtype=torch.float64).T
        generator, values = stream(seed, "training set"), torch.empty(0, len(low), dtype=torch.float64)
        while len(values) < count:
            draws = low + (high - low) * torch.rand(2 * count, len(low), dtype=torch.float64, generator=generator)
            values = torch.cat([values, draws[self.usable[self.grid.nearest(draws)]]])
        return values[:count]

    @model_validator(mode="after")
    def _check(self) -> Self:
        is_new = self._given_holdout is None and not OPENING.get()
        if self._given_holdout is None:  # pydantic validates a task again inside a spec
            self._given_holdout, self._given_encoding = self.holdout, self.encoding
        object.__setattr__(self, "holdout", self.resolved_holdout())
        object.__setattr__(self, "excluded", self.excluded.resolved(self.grid))
        object.__setattr__(self, "encoding", self.encoding.resolved(self.grid))
        axes_of(self.blocks, self.grid)
        if not self.allow_unseen and (unseen := self.holdout_summary.unseen):
            some = ", ".join(unseen[:3]) + (", …" if len(unseen) > 3 else "")
            allowed = f"a mask that keeps every factor value in training (this removes {some}), or use allow_unseen"
            raise InvalidValue("holdout", str(self.holdout), allowed)
        if is_new and not isinstance(self.holdout, Nothing) and not bool(self.held_out.any()):
            raise InvalidValue("holdout", str(self.holdout), "none, or a hold-out with at least one combination")
        self._check_centers()
        self._check_isolated()
        usable = self.available
        if usable == 0:
            raise InvalidValue("holdout", str(self.holdout), "a mask that keeps at least one combination")
        if self.training.count(usable) == 0 and not self.isolated:
            raise InvalidValue("training", str(self.training), "a rule that yields at least one training example")
        if self.mixing is not None and self.training.count(usable) == 0:
            raise InvalidValue("mixing", self.mixing, "omitted when there are no combinations to mix with")
        return self

    def _check_centers(self) -> None:
        if self.centers != "real":
            return
        for factor in self.grid.factors:
            if factor.form == "category":
                raise InvalidValue("centers", self.centers, f"integer, since {factor.name} is a category")
            if not self.encoding.of(factor).differentiable:
                self._refuse_encoding(factor, "an encoding that accepts real values, since centers is 'real'")
        if isinstance(self.training, Each):
            raise InvalidValue("training", str(self.training), "draws, pick or percent, since centers is 'real'")

    def _check_isolated(self) -> None:
        if not self.isolated:
            for field in ("isolated_factors", "isolated_together", "mixing"):
                if (value := getattr(self, field)) != type(self).model_fields[field].default:
                    raise InvalidValue(field, value, "omitted unless isolated is true")
            return
        try:
            shown = tuple(self.grid.names[axis] for axis in sorted(self.grid.axes(self.isolated_factors)))
        except InvalidValue as error:
            raise InvalidValue("isolated_factors", error.value, error.allowed) from None
        object.__setattr__(self, "isolated_factors", None if shown == self.grid.names else shown)
        largest = min(len(shown), len(self.grid.names) - 1)
        if largest == 0:
            raise InvalidValue("isolated", True, "false, since there is only one factor")
        if self.isolated_together > largest:
            raise InvalidValue("isolated_together", self.isolated_together, f"1 to {largest}")
        groups = self._shown_groups()
        for axis, factor in enumerate(self.grid.factors):
            if not all(axis in group for group in groups) and not self.encoding.of(factor).population:
                self._refuse_encoding(factor, "a population code, since factors are absent from isolated examples")

    def _refuse_encoding(self, factor: Factor, allowed: str) -> Never:
        part = self.encoding.of(factor)
        field = "encoding" if part is self.encoding else f"encoding.{factor.name}"
        raise InvalidValue(field, part.kind, allowed)


TASKS: Registry[Task] = Registry("task", Task)
AnyTask = Annotated[SerializeAsAny[Task], BeforeValidator(TASKS.parse)]
