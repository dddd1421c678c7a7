"""Sweeps: many specs to many finished runs, with one executor or another."""

from recombine.sweep.local import Interrupted, Progress, train

__all__ = ["Interrupted", "Progress", "train"]
