"""Reproduction of papers: studies, claims, results folders, figures and reports."""
