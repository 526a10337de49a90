"""Mistakes that a person makes in the kernels' CUDA source, and who notices each. docs/mutants.md explains them."""
