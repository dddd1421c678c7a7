"""Sweeps: many specs to many finished runs, with one executor or another."""

from recombine.sweep.local import Progress, train

__all__ = ["Progress", "train"]
