"""Decoders of bumps that break in a known way at a known stage, or nowhere.

`PlantedDecoder` renders bumps exactly from bump codes, in four stages: a rotation of the codes; the codes with random
nonlinear features, rotated; the product of the codes of x and y, rotated; the image. A *break* replaces the activations
of one stage at held-out points, and later stages compute from what they get.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

STAGES = ("rotated", "features", "product", "image")


def shifted(x: Tensor, y: Tensor, far: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Each point shows its right-hand neighbour."""
    return [((x + 1).clamp(max=len(far) - 1), y)]


def swapped(x: Tensor, y: Tensor, far: Tensor) -> list[tuple[Tensor, Tensor]]:
    """x and y change places."""
    return [(y, x)]


def other_value(x: Tensor, y: Tensor, far: Tensor) -> list[tuple[Tensor, Tensor]]:
    """y is replaced by a kept one that is far away."""
    return [(x, far[:1].expand_as(x))]


def blended(x: Tensor, y: Tensor, far: Tensor) -> list[tuple[Tensor, Tensor]]:
    """A superposition of two kept points, one with the same x and one with the same y."""
    return [(x, far[:1].expand_as(x)), (far[:1].expand_as(y), y)]


BREAKS: dict[str, Callable[[Tensor, Tensor, Tensor], list[tuple[Tensor, Tensor]]] | None] = {
    "shifted": shifted, "swapped": swapped, "other value": other_value, "blended": blended, "blank": None,
}  # fmt: skip


class Stage(nn.Module):
    """One stage: a function of the previous one, with what replaces its rows at held-out points."""

    def __init__(self, compute: Callable[[Tensor], Tensor], replace: Callable[[Tensor, Tensor], Tensor] | None) -> None:
        super().__init__()
        self.compute, self.replace = compute, replace

    def forward(self, rows: Tensor, codes: Tensor) -> Tensor:
        rows = self.compute(rows)
        return rows if self.replace is None else self.replace(rows, codes)


class PlantedDecoder(nn.Module):
    """An exact decoder of bumps from the codes of x and y, broken at a stage (or nowhere) for held-out points."""

    def __init__(self, size: int, held_out: Tensor, stage: str = "", how: str = "blank", seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        first, second, third = (
            torch.linalg.qr(torch.randn(side, side, generator=generator))[0] for side in (2 * size, 4 * size, size**2)
        )
        weights = torch.randn(2 * size, 2 * size, generator=generator) / size**0.5
        pixels = torch.arange(size)
        self.known = torch.exp(-((pixels - pixels[:, None]) ** 2) / 2.0)
        self.size, self.how, self.held_out = size, how, held_out.reshape(size, size)
        kept = ~self.held_out
        self.far = int((kept.float().sum(dim=0) + kept.float().sum(dim=1)).argmax())  # kept whatever the other factor

        def features(rows: Tensor) -> Tensor:
            codes = rows @ first.T
            return torch.cat([codes, torch.relu(codes @ weights)], dim=1) @ second

        def product(rows: Tensor) -> Tensor:
            x, y = (rows @ second.T)[:, : 2 * size].unflatten(1, (2, size)).unbind(1)
            return (y[:, :, None] * x[:, None, :]).flatten(1) @ third

        self.computed = {
            "rotated": lambda codes: codes @ first, "features": features, "product": product,
            "image": lambda rows: (rows @ third.T).unflatten(1, (size, size)),
        }  # fmt: skip
        for name, compute in self.computed.items():
            self.add_module(name, Stage(compute, partial(self._broken, name) if name == stage else None))

    def forward(self, codes: Tensor) -> Tensor:
        rows = codes
        for name in STAGES:
            rows = self.get_submodule(name)(rows, codes)
        return rows

    def _clean(self, stage: str, x: Tensor, y: Tensor) -> Tensor:
        """Return the activations of a stage without any break."""
        rows = torch.cat([self.known[x], self.known[y]], dim=1)
        for name in STAGES[: STAGES.index(stage) + 1]:
            rows = self.computed[name](rows)
        return rows

    def _broken(self, stage: str, rows: Tensor, codes: Tensor) -> Tensor:
        x, y = codes.unflatten(1, (2, self.size)).argmax(dim=-1).unbind(1)
        instead = BREAKS[self.how]
        if instead is None:
            replaced = torch.zeros_like(rows)
        else:
            points = instead(x, y, torch.full((self.size,), self.far))
            replaced = torch.stack([self._clean(stage, *point) for point in points]).mean(dim=0)
        return torch.where(self.held_out[x, y].reshape(-1, *[1] * (rows.ndim - 1)), replaced.to(rows), rows)
