"""Figures to files, verdicts to text, and the page. No torch here."""
