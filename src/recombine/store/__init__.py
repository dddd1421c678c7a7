"""The store: runs on disk, content-addressed, atomic, resumable."""

from recombine.store.catalogue import Listing
from recombine.store.loading import flattened, load
from recombine.store.pretrained import ModelConfig, from_pretrained
from recombine.store.run import Problem, Run
from recombine.store.store import Store, store_path
from recombine.store.summary import Spread, Summary, summarize

__all__ = [
    "Listing",
    "ModelConfig",
    "Problem",
    "Run",
    "Spread",
    "Store",
    "Summary",
    "flattened",
    "from_pretrained",
    "load",
    "store_path",
    "summarize",
]
