"""Sweeps, which train many specs in this process, in several processes, or on a cluster."""

from recombine.sweep.executors import train
from recombine.sweep.progress import Progress
