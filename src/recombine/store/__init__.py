"""The store: runs on disk, content-addressed, written atomically, resumable."""

from recombine.store.pretrained import ModelConfig, from_pretrained
from recombine.store.run import Problem, Run, flattened
from recombine.store.store import Store, store_path
from recombine.store.summary import Spread, Summary, summarize
