"""`python -m recombine`."""

from recombine.cli import main

main()
