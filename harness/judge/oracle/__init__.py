"""Inputs, what their outputs should be, and how far the outputs of a kernel are from that."""
