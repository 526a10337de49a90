"""Kernels that are not ours, each with its adapter and suite: what `fmha init` writes, and what tests run."""
