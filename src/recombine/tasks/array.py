"""The array task: images of a user's own, with the factors that made them.

The grid is the one that the factors' values span. Data may lack combinations: those are neither kept nor held out, and
nothing is evaluated at them. A spec has the data's identity in the place of a path, so that a run's key is the same
wherever the file lies, and another one as soon as a pixel changes.

Images have no derivative with respect to factors, nothing between two values, and no factor that is absent.
Known answers: the image of a row's values is that row; the blank output is the mean image.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator
from torch import Tensor

from recombine.checks import checked
from recombine.data import Arrangement, LabelledImages, arranged, open_images, with_factors
from recombine.data.columns import TURN, Form
from recombine.errors import InvalidValue, listed
from recombine.factors import FactorGrid
from recombine.streams import stream
from recombine.tasks.base import TASKS, Examples, Task

EVALUATED = 2**13
"""Kept and held-out grid points, of each, at which networks are evaluated; of more, so many are drawn."""
OFF_GRID = 1e-6
"""Share of a spacing that a value may be off a value of the data."""


@TASKS.register
class ArrayTask(Task):
    """Images that a file or arrays hold, looked up by their factors' values.

    `ArrayTask(data="sprites.npz")` reads a file (docs/data.md lists layouts), `ArrayTask(images=…, factors={…})` takes
    arrays.

    Parameters
    ----------
    images
        `(row, y, x)`, or `(row, y, x, channel)` for colour: bytes, or floating numbers from 0 to 1.
    factors
        A list of values per factor, numbers or texts, with a value for each image.
    **fields
        The task's fields, `data` among them where no arrays are given.

    Examples
    --------
    >>> images = np.zeros((6, 8, 8), dtype=np.uint8)
    >>> task = ArrayTask(images, {"shape": ["heart", "square"] * 3, "x": [0, 0, 1, 1, 2, 2]}, holdout="center")
    >>> task.grid.shape, task.levels["shape"], int(task.held_out.sum())
    ((2, 3), ('heart', 'square'), 2)
    """

    kind: Literal["array"] = "array"
    data: str
    """File or folder of images and factors (docs/data.md); a spec holds the identity of what is in it instead."""
    categorical: tuple[str, ...] = ()
    """Factors whose numbers are names of categories; texts always are."""
    angular: tuple[str, ...] = ()
    """Factors that are angles."""
    turn: Annotated[float, Field(gt=0)] = TURN
    """A full turn in the units of the angular factors: 360 for degrees, 6.283185 for radians."""

    position_factors: ClassVar[tuple[str, ...]] = ()
    streamed: ClassVar[bool] = True

    def __init__(self, /, images: Any = None, factors: Any = None, **fields: Any) -> None:
        if images is not None or factors is not None:
            if fields.get("data") is not None:
                raise InvalidValue("data", fields["data"], "either data or images and factors")
            fields["data"] = with_factors(images, factors)
        opened = open_images(fields["data"]) if fields.get("data") is not None else None  # kept until the grid is made
        super().__init__(**({**fields, "data": opened.digest} if opened is not None else fields))

    @cached_property
    def source(self) -> LabelledImages:
        """The images and their factors."""
        return open_images(self.data)

    @cached_property
    def arrangement(self) -> Arrangement:
        """The grid that the factors span, and the image of each of its points."""
        forms: dict[str, Form] = dict.fromkeys(self.categorical, "category")
        forms |= dict.fromkeys(self.angular, "angle")
        return arranged(self.source.columns, forms, self.turn, self.source.factors_field)

    @property
    def levels(self) -> dict[str, tuple[Any, ...]]:
        """The values of each factor as the data have them, in the order of its positions."""
        return self.arrangement.levels

    def factor_grid(self) -> FactorGrid:
        return self.arrangement.grid

    @cached_property
    def present(self) -> Bool[Tensor, " point"]:
        return torch.from_numpy(self.arrangement.row_of_point >= 0)

    def evaluated(self) -> Int[Tensor, " point"] | None:
        regions = [torch.nonzero(region).flatten() for region in (self.present & ~self.held_out, self.held_out)]
        drawn = [
            points[torch.randperm(len(points), generator=stream(0, "evaluated"))[:EVALUATED]] for points in regions
        ]
        points = torch.cat(drawn).sort().values
        return None if len(points) == self.grid.size else points

    @property
    def image_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.source.image_shape

    @cached_property
    def mean_image(self) -> Float[Tensor, " *image"]:
        """The mean over images from all over the data."""
        return self.source.images(self.source.sample()).mean(dim=0)

    @cached_property
    def background(self) -> float:
        return self.source.images(self.source.sample()).median().item()

    @cached_property
    def blank(self) -> Float[Tensor, " ..."]:
        """The output that ignores the input: the mean image, or the mean code over the data."""
        if self.direction == "decode":
            return self.mean_image
        rows = self.arrangement.row_of_point
        points = np.flatnonzero(rows >= 0)
        chosen = points[np.linspace(0, len(points) - 1, min(len(points), EVALUATED)).round().astype(np.int64)]
        return self.codes(self.grid.points[torch.from_numpy(chosen)]).mean(dim=0).float()

    @checked
    def rows(self, values: Float[Tensor, "row factor"]) -> Int[Tensor, " row"]:
        """Which image of the data shows each row of factor values."""
        self.check_columns(values)
        values = values.detach().cpu()
        points = self.grid.nearest(values)
        for k, factor in enumerate(self.grid.factors):
            position = factor.position(values[:, k])
            if bool(((position - position.round()).abs() > OFF_GRID).any()):
                raise InvalidValue("values", factor.name, "values that the data have: there is nothing between images")
        rows = torch.from_numpy(self.arrangement.row_of_point)[points]
        if bool((rows < 0).any()):
            missing = values[int((rows < 0).nonzero()[0])].tolist()
            raise InvalidValue("values", missing, f"combinations of {listed(self.grid.names)} that the data have")
        return rows

    @checked
    def render(self, values: Float[Tensor, "row factor"]) -> Float[Tensor, " row *image"]:
        return self.source.images(self.rows(values).numpy()).to(values.device)

    def examples(self, values: Float[Tensor, "row factor"]) -> Examples:
        codes, images = self.codes(values).float(), self.render(values)
        if self.direction == "decode":
            return Examples(codes, images)
        return Examples(images if images.ndim == 4 else images[:, None], codes)

    @model_validator(mode="after")
    def _check(self) -> Self:
        for field in ("categorical", "angular"):
            for name in getattr(self, field):
                if name not in self.source.columns:
                    raise InvalidValue(field, name, f"names of factors of the data: {listed(self.source.columns)}")
        if both := set(self.categorical) & set(self.angular):
            raise InvalidValue("angular", listed(sorted(both)), "factors that are not categorical too")
        numbers = {name for name, column in self.source.columns.items() if column.dtype.kind == "f"}
        object.__setattr__(self, "categorical", tuple(sorted(numbers.intersection(self.categorical))))
        object.__setattr__(self, "angular", tuple(sorted(set(self.angular))))  # so that equal tasks are equal specs
        if self.isolated:
            raise InvalidValue("isolated", True, "false: images show all factors at once")
        if self.centers == "real":
            raise InvalidValue("centers", self.centers, "integer, since there is nothing between two images")
        return super()._check()  # type: ignore[operator]  # a plain method once the class is made
