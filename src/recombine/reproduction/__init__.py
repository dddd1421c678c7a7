"""Reproduction of papers: studies, claims, results folders, figures and reports.

A paper is one record (`paper.Paper`); the papers themselves are in `recombine.papers`.
"""
