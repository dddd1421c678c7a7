"""Chunks of a batch, threads that take them, and memory that steps before have used.

What is summed over images is added up chunk by chunk, whoever did which: bits do not depend on how many threads there
are. Asking the system for memory costs more than filling it, so buffers are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch
from torch import Tensor

CHUNK, MAX_CHUNKS = 8, 8
"""Images of a chunk, and the largest number of chunks: larger batches have larger chunks."""
LARGEST_KEPT = 2**28
"""Numbers that all kept buffers have together, a GiB of them."""
_kept: dict[int, list[Tensor]] = {}
"""Buffers by size."""


def by_chunks(batch: int, work: Callable[[int, int, int], None]) -> None:
    """Do `work(first, last, chunk)` for every chunk, in as many threads as torch has."""
    chunks = chunks_of(batch)
    threads = min(torch.get_num_threads(), len(chunks))
    if threads <= 1:
        for chunk in chunks:
            work(*chunk)
    else:
        list(_threads(threads).map(lambda chunk: work(*chunk), chunks))


def chunks_of(batch: int) -> list[tuple[int, int, int]]:
    """Each chunk's first image, the one after its last, and its number."""
    size = max(CHUNK, -(-batch // MAX_CHUNKS))
    return [(first, min(batch, first + size), first // size) for first in range(0, batch, size)]


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="recombine")


def take_buffer(size: int) -> Tensor:
    """A buffer of so many numbers in float32, whatever they are."""
    try:
        return _kept[size].pop()
    except (KeyError, IndexError):
        return torch.empty(size, dtype=torch.float32, device="cpu")


def return_buffer(buffer: Tensor) -> None:
    """Keep a buffer for the next that asks for its size."""
    if sum(size * len(buffers) for size, buffers in list(_kept.items())) + len(buffer) > LARGEST_KEPT:
        _kept.clear()
    if len(buffer) <= LARGEST_KEPT:
        _kept.setdefault(len(buffer), []).append(buffer)
