"""Triton kernels with the member as a grid axis. Importing a module of this package needs Triton."""
