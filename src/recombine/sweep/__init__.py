"""Sweeps: many specs to many finished runs, with one executor or another."""

from recombine.sweep.executors import train
from recombine.sweep.progress import Progress

__all__ = ["Progress", "train"]
