"""Instructions on a lane's registers: arithmetic, comparisons, conversions. Their handlers are in core/ptx/scalar."""
