"""Matrix fragments in registers: mma.sync, wmma and what moves them. Their handlers are in core/ptx/mma."""
