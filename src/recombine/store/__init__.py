"""The store: runs on disk, content-addressed, atomic, resumable."""

from recombine.store.catalogue import Listing
from recombine.store.loading import flattened, load
from recombine.store.run import Problem, Run
from recombine.store.store import Store, store_path
from recombine.store.summary import Spread, Summary, summarize

__all__ = ["Listing", "Problem", "Run", "Spread", "Store", "Summary", "flattened", "load", "store_path", "summarize"]
