"""Which core this CPU runs. A wheel has one for the least that it accepts and others for newer CPUs, in folders named
by their level; a checkout has the one that was compiled here. All of them compute the same bits: see
docs/understand/numbers.md."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Collection
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

# The flags of /proc/cpuinfo that each level needs, the best level first: x86-64-v3 and v4 of the x86-64 psABI, the
# latter with VBMI, which all CPUs with AVX-512 have since 2019. Tiles are asked for by the core itself, as it runs.
_V3 = {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
LEVELS = {
    "x86_64_v4": _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512vbmi"},
    "x86_64_v3": _V3,
}
BASELINE = "baseline"
VARIABLE = "FMHA_CPU_LEVEL"  # for whoever compares them


def load_core(package: Path) -> str:
    """Makes `fmha.emulator._core` the best core in `package` that this CPU runs; the name of its level, BASELINE for
    the one that is imported without any doing. FMHA_CPU_LEVEL names another. Raises ImportError for one that is not
    there.
    """
    cores = {level: path for level in LEVELS if (path := _core_of(package, level))}
    wanted = os.environ.get(VARIABLE)
    if wanted not in (None, "", BASELINE, *cores):
        raise ImportError(f"{VARIABLE}={wanted}: {package} has {', '.join((BASELINE, *cores))}")
    chosen = wanted or next((level for level in best(cpu_flags() if cores else ()) if level in cores), BASELINE)
    if chosen != BASELINE:
        _import(cores[chosen])
    return chosen


def available() -> list[str]:
    """The levels of the cores of this installation that this CPU runs."""
    package = Path(__file__).resolve().parent
    return [BASELINE, *(level for level in best(cpu_flags()) if _core_of(package, level))]


def _core_of(package: Path, level: str) -> Path | None:
    files = (package / level / f"_core{suffix}" for suffix in EXTENSION_SUFFIXES)
    return next((path for path in files if path.is_file()), None)


def best(flags: Collection[str]) -> list[str]:
    """The levels that a CPU with these flags runs, the best first."""
    return [level for level, needed in LEVELS.items() if needed <= set(flags)]


def cpu_flags() -> Collection[str]:
    """Those that the kernel lets processes use; none where it does not say."""
    try:
        found = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        return ()
    return found[1].split() if found else ()


def _import(path: Path) -> None:
    spec = importlib.util.spec_from_file_location("fmha.emulator._core", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fmha.emulator._core"] = module
    spec.loader.exec_module(module)
