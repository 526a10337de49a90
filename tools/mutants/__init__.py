"""Mistakes that a person makes in the kernels' CUDA source, and who notices each: docs/reference/mutants.md."""
