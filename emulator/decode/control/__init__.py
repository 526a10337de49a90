"""Branches, calls and what is asked of the system. Their handlers are in core/ptx/control."""
