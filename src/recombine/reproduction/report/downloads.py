"""The data behind figures, in the page: exact if that fits, else rounded, else as a link to the file beside it."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray

from recombine.reproduction.netcdf import encoded

KEPT_BITS = 11
"""Of a number's fraction, where numbers are rounded: more than three digits."""


@dataclass(frozen=True)
class Download:
    """A study's Dataset."""

    study: str
    path: str
    """From the page on."""
    content: str | None
    """netCDF-4, compressed by zlib, in base64; none where it is only a link."""
    rounded: bool = False

    @property
    def note(self) -> str:
        """What a reader must know."""
        if self.content is None:
            return "too large for this page; in the folder beside it"
        return (
            f"numbers rounded to three digits; exact ones are in {self.path}, beside this page" if self.rounded else ""
        )


def downloads(
    paths: Mapping[str, str], contents: Mapping[str, bytes], datasets: Mapping[str, xarray.Dataset], space: int
) -> list[Download]:
    """Datasets for a page.

    Parameters
    ----------
    paths
        By study, where its file is from the page on.
    contents, datasets
        By study, what is in the file.
    space
        Characters that there is space for.

    Returns
    -------
    list of Download
        In the given order. All are exact if all fit; else they are rounded, and the largest may be links.
    """
    exact = {study: _text(content) for study, content in contents.items()}
    if sum(map(len, exact.values())) <= space:
        return [Download(study, paths[study], text) for study, text in exact.items()]
    texts = {study: _text(encoded(rounded(dataset))) for study, dataset in datasets.items()}
    fitting = _smallest(texts, space)
    return [Download(study, paths[study], texts[study] if study in fitting else None, True) for study in datasets]


def _smallest(texts: Mapping[str, str], space: int) -> Sequence[str]:
    """As many of the texts as there is space for."""
    fitting: list[str] = []
    for study in sorted(texts, key=lambda name: len(texts[name])):
        space -= len(texts[study])
        if space >= 0:
            fitting.append(study)
    return fitting


def rounded(dataset: xarray.Dataset) -> xarray.Dataset:
    """The same with fewer digits, as float32, which compresses better."""
    changed = {
        name: (own.dims, _rounded(own.values), own.attrs)
        for name, own in dataset.data_vars.items()
        if own.dtype.kind == "f" and own.ndim
    }
    return dataset.assign(changed).assign_attrs(rounded=f"to {KEPT_BITS} bits of their fraction")


def _rounded(values: np.ndarray) -> np.ndarray:
    numbers = np.asarray(values, dtype=np.float32)
    dropped = np.finfo(np.float32).nmant - KEPT_BITS
    bits = np.ascontiguousarray(numbers).view(np.uint32).astype(np.uint64)
    half, mask = np.uint64(1 << (dropped - 1)), np.uint64(0xFFFFFFFF ^ ((1 << dropped) - 1))
    shorter = ((bits + half) & mask).astype(np.uint32).view(np.float32).reshape(numbers.shape)
    return np.where(np.isfinite(numbers), shorter, numbers)


def _text(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content, 9)).decode()
