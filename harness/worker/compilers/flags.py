"""Which of nvcc's flags leave its list of what was read whole.

A build is kept under what it read, and nvcc lists includes alone. Under many a flag something else decides as well: a
file of options, a plug-in, another program for a pass, a list that goes elsewhere. nvcc hands flags on to the host's
compiler in more than one way, and leaves a blank in one to the shell. So it is known of each flag that is here that it
names nothing but includes; a build under any other is made anew each time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

# A name or a value that neither nvcc nor a shell takes apart.
_VALUE = r"[A-Za-z0-9_./+:=,~-]+"
_PLAIN = re.compile(
    "|".join(
        (
            r"-O[0-3]?|-g|-G|-w|-v|-lineinfo|-m64|-res-usage|-use_fast_math|-cubin|-ptx",
            r"--(?:generate-line-info|device-debug|debug|disable-warnings|verbose|resource-usage|use_fast_math)",
            r"--?(?:expt-relaxed-constexpr|expt-extended-lambda|extended-lambda|restrict|extra-device-vectorization)",
            r"--?(?:ftz|prec-div|prec-sqrt|fmad|maxrregcount|std|optimize|default-stream|split-compile|threads)=[\w+-]+",
            r"(?:-arch|-code|-gencode|--gpu-architecture|--gpu-code|--generate-code)=[\w.=,-]+",
            rf"-[DU][A-Za-z_]\w*(?:={_VALUE})?|-I{_VALUE}",
            rf"--(?:define-macro|undefine-macro|include-path|system-include)={_VALUE}",
            r"--?Werror=[\w,-]+|-diag-(?:suppress|warn|error|once|default)=[\w,-]+",
        )
    )
)
# What comes after these is a value.
_TAKE = {
    "-I": _VALUE, "-isystem": _VALUE, "--include-path": _VALUE, "--system-include": _VALUE,
    "-D": _VALUE, "-U": _VALUE, "-std": r"[\w+]+", "--std": r"[\w+]+", "-arch": r"[\w.-]+", "-code": r"[\w.,-]+",
    "-gencode": r"[\w.=,-]+", "--gpu-architecture": r"[\w.-]+", "-maxrregcount": r"\d+", "--maxrregcount": r"\d+",
}  # fmt: skip
_HOST = re.compile(
    r"-W[a-z][a-z0-9+=-]{2,}|-w|-g|-O[0-3]?|-m(?:arch|tune)=[\w.-]+|-std=[\w+]+|-DNDEBUG"
    r"|-f(?:no-)?(?:PIC|pic|PIE|pie|strict-aliasing|exceptions|rtti|math-errno|fast-math|omit-frame-pointer)"
)
_PTXAS = re.compile(
    r"-v|-w|-g|-O[0-4]|-lineinfo|-warn-spills|-warn-lmem-usage|-dlcm=\w+|-dscm=\w+|-allow-expensive-optimizations=\w+"
    r"|--(?:verbose|warn-on-spills|warn-on-local-memory-usage|allow-expensive-optimizations=\w+|maxrregcount=\d+)"
    r"|--(?:opt-level=\d|def-load-cache=\w+|def-store-cache=\w+|register-usage-level=\d+)|-maxrregcount=\d+"
)
_HANDED_ON = {"-Xcompiler": _HOST, "--compiler-options": _HOST, "-Xptxas": _PTXAS, "--ptxas-options": _PTXAS}


def repeatable(flags: Sequence[str]) -> bool:
    """Whether all that nvcc reads under `flags` can be told: each of them is known."""
    left = iter(flags)
    return all(_known(flag, left) for flag in left)


def _known(flag: str, left: Iterator[str]) -> bool:
    """Whether a flag is one, with the value that it takes from those that are left."""
    name, equals, value = flag.partition("=")
    if name in _HANDED_ON:
        parts = (value if equals else next(left, "")).split(",")
        return all(_HANDED_ON[name].fullmatch(part) for part in parts)
    if flag in _TAKE:
        return re.fullmatch(_TAKE[flag], next(left, "")) is not None
    return _PLAIN.fullmatch(flag) is not None
