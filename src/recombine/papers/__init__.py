"""Reproducible papers, one package each, discovered through entry points (see `recombine.reproduction.installed`)."""
