"""The array task: user-supplied images with known factors.

Missing combinations are allowed; they are neither kept nor held out, and are never evaluated. A spec stores a digest of
the data instead of a path, so a run's key changes with any pixel but does not depend on where the file is.

Images are not differentiable in the factors. No factor can be absent from an image, so isolated examples are averages
over images that may be trained on (`tasks/base.py`). The blank output is the mean image.
"""

from __future__ import annotations

import math
from functools import cached_property
from itertools import islice
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator
from torch import Tensor

from recombine.data import Arrangement, LabelledImages, arranged, open_images, with_factors
from recombine.encodings import AnyEncoding, Mixed
from recombine.errors import InvalidValue, listed
from recombine.factors import TURN, FactorGrid, Form
from recombine.tasks.base import TASKS, Task

KEPT_MEANS = 2**26
"""Maximum size in bytes of the cache for mean images."""


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
        For each factor, a list of numbers or strings with one value per image.

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
        return arranged(self.source.columns, forms, self.turn, self.source.factors_field)

    @property
    def levels(self) -> dict[str, tuple[Any, ...]]:
        """Values of each factor as they appear in the data, in grid order."""
        return self.arrangement.levels

    def factor_grid(self) -> FactorGrid:
        return self.arrangement.grid

    @cached_property
    def present(self) -> Bool[Tensor, " point"]:
        return torch.from_numpy(self.arrangement.row_of_point >= 0)

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

    def rows(self, values: Float[Tensor, "row factor"]) -> Int[Tensor, " row"]:
        """Return the image index for each row of factor values."""
        self.check_columns(values)
        values = values.detach().cpu()
        points = self.grid.nearest(values)
        for k, (factor, nearest) in enumerate(
            zip(self.grid.factors, self.grid.positions(points).unbind(1), strict=True)
        ):
            if bool(((factor.position(values[:, k]) - nearest).abs() > 1e-6).any()):
                raise InvalidValue("values", factor.name, "values in the data; images are not interpolated")
        rows = torch.from_numpy(self.arrangement.row_of_point)[points]
        if bool((rows < 0).any()):
            missing = values[int((rows < 0).nonzero()[0])].tolist()
            raise InvalidValue("values", missing, f"combinations of {listed(self.grid.names)} that occur in the data")
        return rows

    def render(self, values: Float[Tensor, "row factor"]) -> Float[Tensor, "row *channel y x"]:
        return self.source.images(self.rows(values).numpy()).to(values.device)

    def images(self, values: Float[Tensor, "row factor"]) -> Float[Tensor, "row ..."]:
        absent = torch.isnan(values).any(dim=1)
        if not bool(absent.any()):
            return self.render(values)
        images = torch.empty(len(values), *self.image_shape)
        images[~absent] = self.render(values[~absent])
        images[absent] = self._mean_images(values[absent])
        return images

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
        for field in ("categorical", "angular"):
            for name in getattr(self, field):
                if name not in self.source.columns:
                    raise InvalidValue(field, name, f"factors of the data: {listed(self.source.columns)}")
        if both := set(self.categorical) & set(self.angular):
            raise InvalidValue("angular", listed(sorted(both)), "factors that are not categorical")
        numbers = {name for name, column in self.source.columns.items() if column.dtype.kind == "f"}
        object.__setattr__(self, "categorical", tuple(sorted(numbers.intersection(self.categorical))))
        object.__setattr__(self, "angular", tuple(sorted(set(self.angular))))  # so that equal tasks are equal specs
        if self.centers == "real":
            raise InvalidValue("centers", self.centers, "integer, since images are not interpolated")
        return super()._check()  # type: ignore[operator]  # a plain method once the class is created
