"""C++ kernels for one network on a CPU, compiled on the machine that runs them.

They compute a training step of the transposed-convolution decoder with fewer passes over memory, fewer multiplications
(Winograd) and no per-call library overhead, and convolutions with few channels, for which libraries are slow.
"""
