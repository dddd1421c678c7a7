"""The report: one self-contained HTML page from a folder of results."""

from recombine.report.page import write_report

__all__ = ["write_report"]
