"""C++ kernels for one network on a CPU, compiled on the machine they run on.

They know the one shape of decoder that is trained most, transposed convolutions from a point to an image, and do a step
of it in fewer passes over memory, with fewer multiplications (Winograd) and without a library's overhead per call; and
convolutions with few channels, for which libraries have no good way.
"""
