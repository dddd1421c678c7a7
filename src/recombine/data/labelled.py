"""Images with the values of the factors that made them, and the identity of both.

The identity is a SHA-256 of all pixels, factor names and values: the same data have the same one in whatever file, and
with a single changed pixel another. It is computed when a file is read for the first time and kept in the cache
(`recombine.data.cache`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from recombine.data.pixels import Pixels
from recombine.data.source import Source, largest_number
from recombine.keys import DIGEST_LENGTH, canonical_json

SAMPLED = 2048
"""Images whose mean stands for that of all."""
BYTE = 255.0


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images and one column of values per factor."""

    pixels: Pixels
    columns: dict[str, np.ndarray]
    digest: str
    largest: float
    """Largest number of any image, as stored."""
    path: Path | None = None
    """Where they came from; none for arrays."""
    factors_field: str = "data"
    """What messages call the factors, followed by a dot and a name."""

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def image_shape(self) -> tuple[int, ...]:
        """`(y, x)`, or `(channel, y, x)` for colour."""
        _, rows, columns, *channels = self.pixels.shape
        return (channels[0], rows, columns) if channels and channels[0] > 1 else (rows, columns)

    def images(self, rows: np.ndarray) -> Float[Tensor, " row *image"]:
        """Some images as numbers from 0 to 1."""
        return self.as_numbers(torch.from_numpy(self.pixels.take(rows)))

    def as_numbers(self, stored: Tensor) -> Float[Tensor, " row *image"]:
        """Images as they are stored, as numbers from 0 to 1 with the channels first."""
        images = stored.float()
        if stored.dtype == torch.uint8 and self.largest > 1:
            images /= BYTE
        if images.ndim == 4:
            images = images.movedim(-1, 1) if images.shape[-1] > 1 else images[..., 0]
        return images.contiguous()

    def sample(self) -> np.ndarray:
        """Rows from all over the data that stand for all of them."""
        return np.unique(np.linspace(0, len(self) - 1, min(len(self), SAMPLED)).round().astype(np.int64))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """In another process: opened again from the file, or sent whole where there is none."""
        from recombine.data import opening

        if self.path is not None:
            return opening.reopened, (self.path, self.digest)
        return opening.received, (self.pixels.array, self.columns, self.digest, self.largest, self.factors_field)


class Identity:
    """The digest of images, fed block by block, and their largest number."""

    def __init__(self, source: Source) -> None:
        self._field, self._rows, self.largest = source.images_field, 0, 0.0
        columns = {
            name: column.tolist() if column.dtype.kind == "U" else hashlib.sha256(column.tobytes()).hexdigest()
            for name, column in source.columns.items()
        }
        shape = source.shape[:-1] if len(source.shape) == 4 and source.shape[3] == 1 else source.shape
        header = {"shape": list(shape), "kind": source.dtype.name, "columns": list(columns.items())}
        self._digest = hashlib.sha256(canonical_json(header).encode())

    def add(self, block: np.ndarray) -> None:
        """Feed the next images."""
        self.largest = max(self.largest, largest_number(self._field, block, self._rows))
        self._rows += len(block)
        self._digest.update(np.ascontiguousarray(block).data)

    @property
    def digest(self) -> str:
        """Of all that was fed."""
        return self._digest.hexdigest()[:DIGEST_LENGTH]
