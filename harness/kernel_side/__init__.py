"""The kernel's side: which kernel runs a configuration, what nvcc is given, how a kernel is launched.

It comes with the commit that is judged. `python -m fmha.harness.kernel_side` answers a judge's questions about it.
"""
