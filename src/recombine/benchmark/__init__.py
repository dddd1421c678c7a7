"""How fast: ours beside a plain loop and beside the machine's measured limits, in one run."""

from recombine.benchmark.cases import CASES, Case
from recombine.benchmark.measure import PARTS, USUAL, measure
from recombine.benchmark.page import performance_blocks

__all__ = ["CASES", "PARTS", "USUAL", "Case", "measure", "performance_blocks"]
