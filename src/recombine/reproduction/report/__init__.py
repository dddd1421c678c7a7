"""The report: figures, verdicts and provenance on one page."""

from recombine.reproduction.report.drawing import save_figure
from recombine.reproduction.report.page import write_report

__all__ = ["save_figure", "write_report"]
