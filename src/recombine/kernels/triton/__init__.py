"""Triton kernels with members as a grid axis. Importing a module from this package requires Triton."""
