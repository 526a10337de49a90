"""Differences from the H200 that are understood, and why the emulator has them. Anything else fails the test.

An entry is taken out when the emulator follows silicon; `test_probes.py` fails for entries that no longer differ.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

_UNALIGNED = (
    "an innermost coordinate that is no multiple of 16 bytes is an illegal instruction on the H200, and is copied here"
)
_NEGATIVE = "the H200 traps on a tensor store with a negative coordinate (illegal instruction); we clip"
_CLIP = "the H200 ends a clipped row of a store at the next 16 bytes, writing into padding; we end it at the element"
_NARROW = "rows shorter than the swizzle's span take the span in shared memory; here they are packed"
_NAN_FILL = "NaN fill is 0x7FF7 in every 16 bits on the H200; here it is all ones"
_SUM = "PTX leaves order and rounding of f32 sums open; sums.py says what the H200 does"
_TINY = ".ftz flushes results that are below 2^-126 before they are rounded to a denormal's precision; here, after"
_REM = "the remainder by zero is unspecified; the H200 gives all ones, we the dividend"
_RNA = "PTX promises a canonical NaN; the H200 rounds a NaN like a number, so that some become infinity"
_DYNAMIC = (
    "dynamic shared memory starts at the alignment of the arrays this kernel uses, at least 16; we take the module's"
)

KNOWN: dict[str, str] = {
    "tma/load_*/33_1": _UNALIGNED,
    "tma/load_u8/137": _UNALIGNED, "tma/load_u8/-1": _UNALIGNED,
    "tma/load_f32/70": _UNALIGNED, "tma/load_u64/33": _UNALIGNED,
    "tma/store_f32/70": _UNALIGNED, "tma/store_u64/33": _UNALIGNED,
    "tma/store_*/*-*": _NEGATIVE,
    "tma/load_128B_narrow/*": _NARROW, "tma/load_64B_narrow/*": _NARROW,
    "tma/store_128B_narrow/*": _NARROW, "tma/store_64B_narrow/*": _NARROW,
    "tma/load_nan_fill/*": _NAN_FILL,
    "tma/store_u8/144": _CLIP, "tma/store_u8/192": _CLIP, "tma/store_f32/68": _CLIP, "tma/store_f32/76": _CLIP,
    "tma/store_128B_f32/32_20": _CLIP, "tma/store_128B_u8/256_20": _CLIP, "tma/store_step/40_20": _CLIP,
    "tma/store_step_uneven/40_22": _CLIP, "tma/store_step_inner/40_25": _CLIP, "tma/store_4d/48_4_4_3": _CLIP,
    "tma/reduce_*_*f16/8_3": _CLIP,
    "mbarrier/arrived_with_negative_tx/*": "on the H200 expect_tx completes a phase when it brings the tx-count to 0",
    "scalar/mul_r?_ftz_f32": _TINY, "scalar/cvt_rn_ftz_f32_f64": _TINY,
    "scalar/testp_normal_f32": "zeros are normal numbers to testp (PTX ISA 9.7.3, testp), not to us",
    "scalar/cvt_rna*_tf32_f32": _RNA,
    "scalar/rem_*": _REM,
    "matrix/sum_*": _SUM,
    "address/after_static": _DYNAMIC,
}  # fmt: skip


def pattern_of(name: str) -> str | None:
    return next((p for p in KNOWN if fnmatchcase(name.removesuffix("/dense"), p)), None)
