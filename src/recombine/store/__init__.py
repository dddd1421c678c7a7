"""The store: runs on disk, content-addressed, atomic, resumable."""

from recombine.store.run import Run
from recombine.store.store import Store, store_path
from recombine.store.summary import Spread, Summary, summarize

__all__ = ["Run", "Spread", "Store", "Summary", "store_path", "summarize"]
