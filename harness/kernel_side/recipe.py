"""What nvcc is given to make a variant: with the sources the kernel's own part of a build."""

from __future__ import annotations

from typing import Final

from fmha.harness.contract.protocol import Variant

ASSEMBLE: Final = ("-lineinfo", "-Xptxas", "-v")
_COMPILE = ("-std=c++17", "-O3", "-lineinfo", "-Ikernel/include", "-Ikernel")


def flags(variant: Variant) -> tuple[str, ...]:
    """What nvcc is given to make the PTX of `variant`, in the root of the sources."""
    return (
        *(variant.flags or _COMPILE),
        f"-arch={variant.arch}",
        *(f"-D{name}={value}" for name, value in variant.defines),
    )
