"""Copies and stores that complete beside the warps. Their handlers are in core/ptx/copies."""
