"""Entry point for `python -m recombine`."""

from recombine.cli import main

main()
