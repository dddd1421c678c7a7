"""Machinery that re-runs a paper and knows none: studies, claims, results folders, figures and reports.

A paper is handed to it as one record (`paper.Paper`); the papers themselves are in `recombine.papers`.
"""
