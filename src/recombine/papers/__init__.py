"""Papers that can be re-run, each a package, found by its entry point (`recombine.reproduction.installed`)."""
