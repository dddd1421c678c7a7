"""C++ kernels for one network on a CPU, compiled on the machine that runs them.

They compute a training step of the transposed-convolution decoder with fewer passes over memory, fewer multiplications
(Winograd) and no per-call overhead of a library; and convolutions with few channels, at which libraries are slow.
"""
