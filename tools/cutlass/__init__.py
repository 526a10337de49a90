"""CUTLASS's matrix products for sm_90a as strangers of the timing model; see fmha's docs/understand/timing.md."""
