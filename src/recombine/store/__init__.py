"""The store: runs on disk, content-addressed, atomic, resumable."""

from recombine.store.run import Run
from recombine.store.store import Store, store_path

__all__ = ["Run", "Store", "store_path"]
