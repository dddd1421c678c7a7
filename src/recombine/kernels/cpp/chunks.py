"""Split a batch into chunks, run them in threads, and reuse memory from earlier steps.

Sums over images are added up chunk by chunk, in order, so that results do not depend on the number of threads.
Allocating memory takes longer than filling it, so buffers are reused.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch
from torch import Tensor

CHUNK, MAX_CHUNKS = 8, 8
"""Minimum number of images per chunk, and maximum number of chunks."""
LARGEST_KEPT = 2**28
"""Maximum total number of elements in all stored buffers (1 GiB)."""
_kept: dict[int, list[Tensor]] = {}
"""Buffers by size."""
_pool = cache(ThreadPoolExecutor)


def by_chunks(batch: int, work: Callable[[int, int, int], None]) -> None:
    """Call `work(first, last, chunk)` for every chunk, with as many threads as torch uses."""
    chunks = chunks_of(batch)
    threads = min(torch.get_num_threads(), len(chunks))
    if threads <= 1:
        for chunk in chunks:
            work(*chunk)
    else:
        list(_pool(threads, "recombine").map(lambda chunk: work(*chunk), chunks))


def chunks_of(batch: int) -> list[tuple[int, int, int]]:
    """Return each chunk's range of images and its index."""
    size = max(CHUNK, -(-batch // MAX_CHUNKS))
    return [(first, min(batch, first + size), first // size) for first in range(0, batch, size)]


def take_buffer(size: int) -> Tensor:
    """Return an uninitialised float32 buffer."""
    try:
        return _kept[size].pop()
    except (KeyError, IndexError):
        return torch.empty(size, dtype=torch.float32, device="cpu")


def return_buffer(buffer: Tensor) -> None:
    """Store a buffer for the next request of the same size."""
    if sum(size * len(buffers) for size, buffers in list(_kept.items())) + len(buffer) > LARGEST_KEPT:
        _kept.clear()
    if len(buffer) <= LARGEST_KEPT:
        _kept.setdefault(len(buffer), []).append(buffer)
