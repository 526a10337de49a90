"""Problems whose reference is PyTorch: KernelBench's and flashinfer-bench's, and programs' answers to them.

An answer's host code runs over tensors that have a shape and no memory. What it launches is written down, and is what
the emulator runs; what it has torch compute is refused. docs/use/problems.md is the guide.
"""
