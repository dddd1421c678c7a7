"""How fast: ours beside a plain loop and beside the machine's measured limits, in one run."""

from recombine.benchmark.blocks import performance_blocks
from recombine.benchmark.cases import CASES, Case
from recombine.benchmark.record import PARTS, USUAL, measure

__all__ = ["CASES", "PARTS", "USUAL", "Case", "measure", "performance_blocks"]
