"""What is run: the attention kernels, kernels of one's own by their adapters, and what users call instead."""
