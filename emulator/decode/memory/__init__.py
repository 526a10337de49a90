"""Accesses to memory that are over when the instruction is. Their handlers are in core/ptx/memory."""
