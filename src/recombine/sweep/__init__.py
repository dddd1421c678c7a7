"""Sweeps: many specs to many finished runs, with one executor or another."""

from recombine.sweep.local import Interrupted, Progress, train
from recombine.sweep.summary import Spread, Summary, summarize

__all__ = ["Interrupted", "Progress", "Spread", "Summary", "summarize", "train"]
