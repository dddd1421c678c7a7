"""The array task: user-supplied images with known factors.

Missing combinations are allowed; they are neither kept nor held out, and are never evaluated. A spec stores a digest of
the data instead of a path, so a run's key changes with any pixel but does not depend on where the file is.

Images are not differentiable in the factors. No factor can be absent from an image, so isolated examples are averages
over images that may be trained on (`tasks/base.py`). The blank output is the mean image.

A combination with several images is shown as their mean. With `repeats="keep"`, training values have one more column,
the row of an image in the data, so that every image is an example of its own; in isolated examples it is NaN.
"""

from __future__ import annotations

import math
from functools import cached_property
from itertools import islice
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from pydantic import BeforeValidator, Field, model_validator
from torch import Tensor

from recombine.data import (
    Arrangement,
    Coverage,
    LabelledImages,
    arranged,
    bins_text,
    open_images,
    parse_bins,
    with_factors,
)
from recombine.encodings import AnyEncoding, Mixed
from recombine.errors import InvalidValue, listed
from recombine.factors import TURN, FactorGrid, Form
from recombine.records import ADDED
from recombine.tasks.base import TASKS, Task

KEPT_MEANS = 2**26
"""Maximum size in bytes of the cache for mean images."""
SUMMED = 2**16
"""Pixels read at once for means of repeated combinations; larger parts, all of other sizes, would fragment memory."""


@TASKS.register
class ArrayTask(Task):
    """Images from a file or arrays, looked up by their factor values.

    `ArrayTask(data="sprites.npz")` reads a file (see docs/data.md for layouts); `ArrayTask(images=…, factors={…})`
    takes arrays.

    Parameters
    ----------
    images
        `(row, y, x)`, or `(row, y, x, channel)` for colour: uint8, bool, or floats from 0 to 1.
    factors
        For each factor, a list of numbers or strings with one value per image; or a DataFrame.

    Examples
    --------
    >>> import numpy as np
    >>> import recombine as rc
    >>> images = np.zeros((6, 8, 8), dtype=np.uint8)
    >>> task = rc.ArrayTask(images, {"shape": ["heart", "square"] * 3, "x": [0, 0, 1, 1, 2, 2]}, holdout="center")
    >>> task.grid.shape, task.levels["shape"], int(task.held_out.sum())
    ((2, 3), ('heart', 'square'), 2)
    """

    kind: Literal["array"] = "array"
    encoding: AnyEncoding = Mixed()
    """Encoding of the factor values. Default: bump for numbers, onehot for categories, circular for angles."""
    data: str
    """File or folder of images and factors (docs/data.md); only a hash of its contents is stored with the run."""
    categorical: tuple[str, ...] = ()
    """Numeric factors to treat as categorical; string-valued factors always are."""
    angular: tuple[str, ...] = ()
    """Factors to treat as angles."""
    turn: Annotated[float, Field(gt=0)] = TURN
    """Size of a full turn in the units of the angular factors: 360 for degrees, 6.283185 for radians."""
    bins: Annotated[str, BeforeValidator(bins_text), ADDED] = ""
    """Merge a factor's values into equal bins (x=10), or move them to the nearest given value (x=0:9, x=0:1:5)."""
    repeats: Annotated[Literal["mean", "keep"] | None, ADDED] = None
    """Average several images of a combination (mean), or train on each of them (keep). Default: refuse them."""

    position_factors: ClassVar[tuple[str, ...]] = ()
    known_by_image: ClassVar[bool] = True
    optional_factors: ClassVar[tuple[str, ...] | None] = ()
    streamed: ClassVar[bool] = True

    def __init__(self, /, images: Any = None, factors: Any = None, **fields: Any) -> None:
        if images is not None or factors is not None:
            if fields.get("data") is not None:
                raise InvalidValue("data", fields["data"], "omitted if images and factors are passed")
            fields["data"] = with_factors(images, factors)
        opened = open_images(fields["data"]) if fields.get("data") is not None else None  # stays open for the grid
        super().__init__(**({**fields, "data": opened.digest} if opened is not None else fields))

    @cached_property
    def source(self) -> LabelledImages:
        """The images and their factors."""
        return open_images(self.data)

    @cached_property
    def arrangement(self) -> Arrangement:
        """The grid that the factors span, and the image index of each point."""
        forms: dict[str, Form] = dict.fromkeys(self.categorical, "category")
        forms |= dict.fromkeys(self.angular, "angle")
        field = self.source.factors_field
        return arranged(self.source.columns, forms, self.turn, field, self.bins, self.repeats)

    @property
    def coverage(self) -> Coverage | None:
        """Numbers of images per combination, and how far values were moved; None without `bins` and `repeats`."""
        return self.arrangement.coverage if self.bins or self.repeats else None

    @property
    def levels(self) -> dict[str, tuple[Any, ...]]:
        """Values of each factor as they appear in the data, in grid order."""
        return self.arrangement.levels

    def factor_grid(self) -> FactorGrid:
        return self.arrangement.grid

    @cached_property
    def has_image(self) -> Bool[Tensor, " point"]:
        """Mask of the combinations with an image."""
        return torch.from_numpy(self.arrangement.counts > 0)

    @cached_property
    def present(self) -> Bool[Tensor, " point"]:
        return self.has_image & ~self.left_out

    @property
    def image_shape(self) -> tuple[int, ...]:
        return self.source.image_shape

    @cached_property
    def background(self) -> float:
        return self.source.images(self.source.sample()).median().item()

    @cached_property
    def blank(self) -> Float[Tensor, " ..."]:
        """Best constant output: the mean image of a sample of the data, or the mean code."""
        if self.direction == "decode":
            return self.source.images(self.source.sample()).mean(dim=0)
        present, means = self.present.reshape(self.grid.shape), []
        for axis, factor in enumerate(self.grid.factors):
            count = present.movedim(axis, 0).reshape(factor.count, -1).sum(dim=1).double()
            means.append(count @ self.encoding.code(factor.values, factor).double() / count.sum())
        return torch.cat(means).float()

    def points(self, values: Float[Tensor, "row factor"]) -> Int[Tensor, " row"]:
        """Return the index in the grid of each row of factor values; all must have images."""
        super().check_columns(values)
        values = values.detach().cpu()
        points = self.grid.nearest(values)
        for k, (factor, nearest) in enumerate(
            zip(self.grid.factors, self.grid.positions(points).unbind(1), strict=True)
        ):
            if bool(((factor.position(values[:, k]) - nearest).abs() > 1e-6).any()):
                raise InvalidValue("values", factor.name, "values in the data; images are not interpolated")
        absent = ~self.has_image[points]
        if bool(absent.any()):
            missing = values[int(absent.nonzero()[0])].tolist()
            raise InvalidValue("values", missing, f"combinations of {listed(self.grid.names)} that occur in the data")
        return points

    def render(self, values: Float[Tensor, "row factor"]) -> Float[Tensor, "row *channel y x"]:
        self.check_columns(values)
        if values.shape[1] > len(self.grid.factors):
            return self.source.images(values[:, -1].long().cpu().numpy()).to(values.device)
        rows, owners = self.arrangement.rows_of(self.points(values).numpy())
        if len(rows) == len(values):
            return self.source.images(rows[np.argsort(owners)]).to(values.device)
        means, counts = torch.zeros(len(values), *self.image_shape), np.bincount(owners)
        step = max(1, SUMMED // math.prod(self.image_shape))
        for first in range(0, len(rows), step):  # in the rows' order, so that a mean has the same bits in any batch
            part = slice(first, first + step)
            means.index_add_(0, torch.from_numpy(owners[part]), self.source.images(rows[part]))
        means /= torch.from_numpy(counts).reshape(-1, *[1] * len(self.image_shape))
        return means.to(values.device)

    def images(self, values: Float[Tensor, "row factor"]) -> Float[Tensor, "row ..."]:
        factors = values[:, : len(self.grid.factors)]
        absent = torch.isnan(factors).any(dim=1)
        if not bool(absent.any()):
            return self.render(values)
        images = torch.empty(len(values), *self.image_shape)
        images[~absent] = self.render(values[~absent])
        images[absent] = self._mean_images(factors[absent])
        return images

    def codes(self, values: Float[Tensor, "row factor"]) -> Float[Tensor, "row code"]:
        self.check_columns(values)
        return super().codes(values[:, : len(self.grid.factors)])

    def check_columns(self, values: Float[Tensor, "row factor"]) -> None:
        has_rows = self.repeats == "keep" and values.shape[1] > len(self.grid.factors)
        super().check_columns(values[:, :-1] if has_rows else values)

    @cached_property
    def _usable_rows(self) -> tuple[Int[Tensor, " image"], Int[Tensor, " image"]]:
        """The rows of all images that may be trained on, and their combinations."""
        points = np.repeat(np.arange(self.grid.size), self.arrangement.counts)
        usable = self.usable.numpy()[points]
        return torch.from_numpy(self.arrangement.rows[usable]), torch.from_numpy(points[usable])

    @property
    def available(self) -> int:
        return len(self._usable_rows[0]) if self.repeats == "keep" else super().available

    def available_values(self, indices: Int[Tensor, " row"]) -> Float[Tensor, "row factor"]:
        if self.repeats != "keep":
            return super().available_values(indices)
        rows, points = (own[indices] for own in self._usable_rows)
        return torch.cat([self.grid.rows(points), rows[:, None].double()], dim=1)

    def isolated_values(self) -> Float[Tensor, "row factor"]:
        alone = super().isolated_values()
        missing = alone.new_full((len(alone), int(self.repeats == "keep")), torch.nan)
        return torch.cat([alone, missing], dim=1)

    def _mean_images(self, values: Float[Tensor, "row factor"]) -> Float[Tensor, "row ..."]:
        """Return mean images over absent factors; they are cached because each mean reads many images."""
        names = [tuple(row) for row in values.nan_to_num(nan=torch.inf).tolist()]
        new = list({name: row for row, name in enumerate(names) if name not in self.means}.values())
        computed = dict(zip((names[row] for row in new), super().images(values[new]), strict=True)) if new else {}
        fitting = KEPT_MEANS // (torch.float32.itemsize * math.prod(self.image_shape)) - len(self.means)
        self.means.update(islice(computed.items(), max(0, fitting)))
        return torch.stack([self.means[name] if name in self.means else computed[name] for name in names])

    @cached_property
    def means(self) -> dict[tuple[float, ...], Tensor]:
        """Cache of mean images by their factor values; infinity marks absent factors."""
        return {}

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = {"categorical": self.categorical, "angular": self.angular, "bins": parse_bins(self.bins)}
        for field, names in given.items():
            if unknown := [name for name in names if name not in self.source.columns]:
                raise InvalidValue(field, unknown[0], f"factors of the data: {listed(self.source.columns)}")
        if both := set(self.categorical) & set(self.angular):
            raise InvalidValue("angular", listed(sorted(both)), "factors that are not categorical")
        numbers = {name for name, column in self.source.columns.items() if column.dtype.kind == "f"}
        object.__setattr__(self, "categorical", tuple(sorted(numbers.intersection(self.categorical))))
        object.__setattr__(self, "angular", tuple(sorted(set(self.angular))))  # so that equal tasks are equal specs
        if self.centers == "real":
            raise InvalidValue("centers", self.centers, "integer, since images are not interpolated")
        scattered = [own.name for own in self.grid.factors if 2 * own.count > len(self.source)]
        try:
            return super()._check()  # type: ignore[operator]  # a plain method once the class is created
        except InvalidValue as error:
            if len(scattered) < 2 or error.field != "holdout":
                raise
            allowed = f"{error.allowed}. {listed(scattered)} have about as many values as there are images: use bins"
            raise InvalidValue(error.field, error.value, allowed) from None
