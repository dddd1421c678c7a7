"""Sprites: one or two anti-aliased shapes, in grey or in colour, on a black background.

Images are `image[y, x]` in grey and `image[channel, y, x]` (RGB) in colour. Every sprite has

- `shape`: a category; value k is `shapes[k]`;
- `scale`: the square root of its area in pixels;
- `rotation`: in degrees, counter-clockwise as displayed; 0 is upright;
- `x`, `y`: column and row of its centroid, with pixel centres at the integers 0 … size − 1;
- `hue`: in degrees on a colour wheel where red, green and blue are ½ + ½ cos(hue − {0°, 120°, 240°}), so that the
  colour changes smoothly and at constant speed.

The quantities of a second sprite, which is **in front**, have names that end in 2 (`x2`, …). With default ranges, no
sprite leaves the image. Without colour, the first sprite is white and the second grey. No factor can be absent.

Images are differentiable in all factors except `shape`. Known answers: see `shapes.py`; a full turn of rotation or hue
leaves the image unchanged bit for bit; the squared speed of the colour along the wheel is 3/8 per squared radian.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from recombine.errors import InvalidValue
from recombine.factors import TURN
from recombine.records import ADDED
from recombine.tasks.base import TASKS
from recombine.tasks.quantities import BoundaryText, FactorText, Quantity, QuantityTask
from recombine.tasks.shapes import SMALLEST, cos_sin, coverage

CHANNELS = 3
SECOND = "2"
"""Suffix of the names of the second sprite's quantities."""
HUES = {"": 0.0, SECOND: TURN / 2}
GREYS = {"": 1.0, SECOND: 0.5}
"""Default hue and grey level of the first and second sprite."""
UNSEEN = ("shape", "rotation")
"""Quantities that balls do not have."""
PIXELS_AT_ONCE = {"cpu": 2**21, "cuda": 2**26}
"""Number of pixels drawn at once: as many as fit into the cache (CPU), or enough to keep the device busy (GPU)."""

ShapeName = Literal["square", "ellipse", "heart", "triangle", "rectangle", "cross", "disc"]


def hue_color(hue: Float[Tensor, " row"]) -> Float[Tensor, "row channel"]:
    """Return the RGB colours of hues given in degrees.

    >>> hue_color(torch.tensor([0.0, 360.0, 180.0])).tolist()
    [[1.0, 0.25, 0.25], [1.0, 0.25, 0.25], [0.0, 0.75, 0.75]]
    """
    primaries = torch.arange(CHANNELS, dtype=hue.dtype, device=hue.device) * (TURN / CHANNELS)
    return 0.5 + 0.5 * cos_sin(hue.remainder(TURN)[:, None] - primaries)[0]


def seen_sprite(images: Float[Tensor, "row channel y x"]) -> dict[str, Float[Tensor, " row"]]:
    """Return the hue and the scale of the sprite in each image, from the pixels that are at least half as bright as it.

    >>> image = torch.zeros(1, 3, 9, 9)
    >>> image[..., 2:6, 2:6] = hue_color(torch.tensor([240.0]))[..., None, None]
    >>> {name: round(value.item()) for name, value in seen_sprite(image).items()}
    {'hue': 240, 'scale': 4}
    """
    images = images.nan_to_num().clamp(0, 1)
    covered = images.sum(dim=1, keepdim=True) > CHANNELS / 4  # the channels of every hue sum to 3/2
    cosine, sine = cos_sin(torch.arange(CHANNELS).to(images) * (TURN / CHANNELS))
    total = (images * covered).sum(dim=(2, 3))
    hue = torch.rad2deg(torch.atan2(total @ sine, total @ cosine)).remainder(TURN)
    return {"hue": hue, "scale": covered.sum(dim=(1, 2, 3)).sqrt()}


class Scene(QuantityTask):
    """One or two sprites on a square image."""

    size: Annotated[int, Field(ge=20, le=512)] = 28
    """Height and width of the image in pixels."""

    optional_factors: ClassVar[tuple[str, ...] | None] = ()
    sprite_shapes: ClassVar[tuple[str, ...]] = ("disc",)
    """Shape for each value of the factor `shape`."""
    suffixes: ClassVar[tuple[str, ...]] = ("", SECOND)
    """Suffix of the names of each sprite's quantities, from back to front."""
    in_colour: ClassVar[bool] = True

    @property
    def image_shape(self) -> tuple[int, ...]:
        return (CHANNELS, self.size, self.size) if self.in_colour else (self.size, self.size)

    def quantities(self) -> tuple[Quantity, ...]:
        return tuple(quantity for suffix in self.suffixes for quantity in self.sprite_quantities(suffix))

    def sprite_quantities(self, suffix: str) -> tuple[Quantity, ...]:
        """Return the quantities of one sprite."""
        last, margin, crowd = len(self.sprite_shapes) - 1, self.size // 3, len(self.suffixes) - 1
        middle = (self.size - 1 + (margin if suffix else -margin) * crowd) / 2
        small, usual = (max(SMALLEST, self.size * share) for share in (3 / 14, 1 / 4))
        return (
            Quantity(f"shape{suffix}", 0, last, 0, least=0, most=last, form="category", labels=self.sprite_shapes),
            Quantity(f"scale{suffix}", small, self.size / 3, usual, least=SMALLEST, most=self.size),
            Quantity(f"rotation{suffix}", 0, TURN, usual=0, open_end="high", form="angle", period=TURN),
            Quantity(f"x{suffix}", margin, self.size - 1 - margin, middle),
            Quantity(f"y{suffix}", margin, self.size - 1 - margin, middle),
            Quantity(f"hue{suffix}", 0, TURN, HUES[suffix], open_end="high", form="angle", period=TURN),
        )

    def render(self, values: Float[Tensor, "row factor"]) -> Float[Tensor, "row *channel y x"]:
        at_once = max(1, PIXELS_AT_ONCE.get(values.device.type, PIXELS_AT_ONCE["cpu"]) // self.size**2)
        parts = [self._drawn(part) for part in values.split(at_once)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _drawn(self, values: Float[Tensor, "row factor"]) -> Float[Tensor, "row *channel y x"]:
        columns = self.columns(values)
        image = values.new_zeros(())
        for suffix in self.suffixes:
            covered = self._covered(columns, suffix)
            paint = hue_color(columns[f"hue{suffix}"])[:, :, None, None] if self.in_colour else GREYS[suffix]
            image = image + covered * (paint - image)
        return image

    def _covered(self, columns: dict[str, Tensor], suffix: str) -> Float[Tensor, "row *channel y x"]:
        """Return one sprite's coverage mask, with a channel axis if the task is in colour."""
        placed = [columns[f"{name}{suffix}"] for name in ("x", "y", "scale", "rotation")]
        which = columns[f"shape{suffix}"].detach().round().long()
        order, parts = [], []
        present = [int(index) for index in which.unique()]  # not `tolist`, which fails in jvp in some torch versions
        for index in present or [0]:  # zero rows yield an empty image
            rows = (which == index).nonzero().flatten()
            parts.append(coverage(self.sprite_shapes[index], self.size, *(column[rows] for column in placed)))
            order.append(rows)
        covered = parts[0] if len(parts) == 1 else torch.cat(parts)[torch.cat(order).argsort()]
        return covered[:, None] if self.in_colour else covered


@TASKS.register
class SpriteTask(Scene):
    """One or two sprites, any of whose quantities can be factors.

    Examples
    --------
    >>> import recombine as rc
    >>> task = rc.SpriteTask(factors=("shape=2", "x=3", "hue=2"))
    >>> task.grid.names, task.grid.shape, task.image_shape
    (('shape', 'x', 'hue'), (2, 3, 2), (3, 28, 28))
    """

    kind: Literal["sprites"] = "sprites"
    factors: tuple[FactorText, ...] = ("shape=3", "x=8", "y=8", "hue=4")
    """Factors (NAME=COUNT or NAME=LOW..HIGH..COUNT): shape, scale, rotation, x, y, hue (shape2, … for sprite 2)."""
    sprites: Annotated[int, Field(ge=1, le=2)] = 1
    """Number of sprites; the second is in front, and the names of its quantities end in 2."""
    shapes: tuple[ShapeName, ...] = ("square", "ellipse", "heart", "triangle", "rectangle", "cross", "disc")
    """Available shapes: a shape factor with k values uses the first k; without it, the first one is drawn."""
    colour: bool = False
    """Draw in colour even if hue is not a factor."""
    class_boundaries: Annotated[tuple[BoundaryText, ...], ADDED] = ()
    """Class boundaries, such as hue=120,scale=13: outputs in the right classes of hue and scale count as right."""

    @property
    def sprite_shapes(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.shapes

    @property
    def suffixes(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("", SECOND)[: self.sprites]

    @property
    def in_colour(self) -> bool:  # type: ignore[override]
        return self.colour or any(f"hue{suffix}" in self.grid.names for suffix in self.suffixes)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.shapes or len(set(self.shapes)) < len(self.shapes):
            raise InvalidValue("shapes", ",".join(self.shapes), "one or more distinct shapes")
        known = {"hue", "scale"} & {*self.grid.names} if self.sprites == 1 and self.in_colour else set()
        if not known >= self._boundaries.keys() or len(self._boundaries) < len(self.class_boundaries):
            allowed = "one boundary each of hue and scale, if they are factors of a single sprite in colour"
            raise InvalidValue("class_boundaries", ",".join(self.class_boundaries), allowed)
        return super()._check()  # type: ignore[operator]  # a plain method once the class is made

    @property
    def _boundaries(self) -> dict[str, float]:
        return {name: float(value) for name, _, value in (text.partition("=") for text in self.class_boundaries)}

    def is_right(self, outputs: Tensor, values: Float[Tensor, "row factor"]) -> Tensor:
        if not self.class_boundaries or self.direction == "encode":
            return super().is_right(outputs, values)
        seen, names, values = seen_sprite(outputs.cpu()), self.grid.names, values.cpu()
        shown = torch.stack([seen.get(name, values[:, k]).to(values) for k, name in enumerate(names)], dim=1)
        shown = self.grid.rows(self.grid.nearest(shown))  # hues on a circle are on no side of a number
        boundaries = values.new_tensor([self._boundaries.get(name, torch.inf) for name in names])
        return ((shown > boundaries) == (values > boundaries)).all(dim=1) & (seen["scale"] > 0)


@TASKS.register
class BallsTask(Scene):
    """Two discs of opposite colours, the second in front of the first.

    Examples
    --------
    >>> import recombine as rc
    >>> task = rc.BallsTask(factors=("x=3", "x2=3"))
    >>> task.grid.names, task.image_shape
    (('x', 'x2'), (3, 28, 28))
    """

    kind: Literal["balls"] = "balls"
    factors: tuple[FactorText, ...] = ("x=6", "y=6", "x2=6", "y2=6")
    """Factors (NAME=COUNT or NAME=LOW..HIGH..COUNT), chosen from x, y, scale, hue, x2, y2, scale2, hue2."""

    def columns(self, values: Float[Tensor, "row factor"]) -> dict[str, Float[Tensor, " row"]]:
        zeros = values.new_zeros(len(values))
        return super().columns(values) | {f"{name}{suffix}": zeros for suffix in self.suffixes for name in UNSEEN}

    def sprite_quantities(self, suffix: str) -> tuple[Quantity, ...]:
        """Return the quantities of one ball."""
        unseen = [f"{name}{suffix}" for name in UNSEEN]
        return tuple(quantity for quantity in super().sprite_quantities(suffix) if quantity.name not in unseen)
