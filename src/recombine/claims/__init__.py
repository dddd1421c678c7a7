"""Claims of the paper, criteria and verdicts."""

from recombine.claims.judging import (
    CONFIDENCE,
    FEWEST_SEEDS,
    Absent,
    CaseResult,
    Claim,
    Condition,
    Interval,
    Judgement,
    bootstrap,
)
from recombine.claims.paper import CLAIMS

__all__ = [
    "CLAIMS",
    "CONFIDENCE",
    "FEWEST_SEEDS",
    "Absent",
    "CaseResult",
    "Claim",
    "Condition",
    "Interval",
    "Judgement",
    "bootstrap",
]
