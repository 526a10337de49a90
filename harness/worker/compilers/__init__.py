"""How kernels are compiled: nvcc, other compilers, what has been compiled before."""
