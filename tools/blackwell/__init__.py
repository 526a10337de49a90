"""Kernels of others for Blackwell, modelled, beside what was published of them."""
