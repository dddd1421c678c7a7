"""A small task with any number of factors up to five, of every form, some of which an image cannot do without."""

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field

from recombine.encodings import AnyEncoding, Mixed
from recombine.factors import Factor, FactorGrid
from recombine.tasks import Task

FACTORS = (
    Factor("x", 0, 4, 5),
    Factor("width", 0.5, 2, 4, given=(0.5, 0.7, 1.0, 2.0)),
    Factor("shape", 0, 2, 3, "category"),
    Factor("angle", 0, 270, 4, "angle"),
    Factor("grey", 0.25, 1, 3),
)


class FormsTask(Task):
    """A bump on a line, beside a shape's pattern and a wave, times a grey value. Not registered: for tests alone."""

    kind: Literal["forms"] = "forms"
    encoding: AnyEncoding = Mixed()
    count: Annotated[int, Field(ge=1, le=5)] = 5

    position_factors: ClassVar[tuple[str, ...]] = ()
    optional_factors: ClassVar[tuple[str, ...]] = ("x", "grey")

    def factor_grid(self):
        return FactorGrid(FACTORS[: self.count])

    @property
    def image_shape(self):
        return 6, 5

    def render(self, values):
        self.check_columns(values)
        default = torch.tensor([torch.nan, 1.0, 0.0, 0.0, 1.0], dtype=values.dtype)
        x, width, shape, angle, grey = torch.cat(
            [values, default[values.shape[1] :].expand(len(values), -1)], dim=1
        ).T.reshape(5, -1, 1, 1)
        assert torch.isfinite(torch.cat([width, shape, angle])).all(), "an image cannot be drawn without these"
        rows, columns = torch.arange(6.0, dtype=values.dtype)[:, None], torch.arange(5.0, dtype=values.dtype)
        bump = torch.exp(-(((columns - x) / width) ** 2) / 2).nan_to_num(nan=1.0)
        wave = 1 + torch.cos(torch.deg2rad(angle) + rows)
        return (bump * wave + 0.1 * shape * (rows == columns)) * grey.nan_to_num(nan=1.0)
