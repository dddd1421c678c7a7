"""Chunks of a batch, and threads that take them.

What is summed over images is added up chunk by chunk, whoever did which: bits do not depend on how many threads there
are.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch

CHUNK, MAX_CHUNKS = 8, 8
"""Images of a chunk, and the largest number of chunks: larger batches have larger chunks."""


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
