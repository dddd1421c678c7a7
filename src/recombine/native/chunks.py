"""Chunks of a batch, and threads that take them.

What is summed over images is added up chunk by chunk, whoever did which: bits do not depend on how many threads there
are.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch

CHUNK, MOST_CHUNKS = 8, 8
"""Images of a chunk; more of them where there would be more chunks than that."""


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
    """First and last image and number of each."""
    size = max(CHUNK, -(-batch // MOST_CHUNKS))
    return [(first, min(batch, first + size), first // size) for first in range(0, batch, size)]


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="recombine")
