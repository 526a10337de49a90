"""`make fuzz`: compiles the core of the emulator with AddressSanitizer and UndefinedBehaviorSanitizer, and runs
tools/fuzz.py on it, which the arguments are for. Compiling takes half an hour of one core; FUZZ_JOBS says how many.

The sanitizers' library has to be there before all others, and the C++ library before what throws. With
UBSAN_OPTIONS=halt_on_error=0 undefined behaviour is said and does not end a process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDER = REPOSITORY / "build" / "fuzz"
# At -O1 GCC inlines nothing that is handed on as a function, and says so of what has to be inlined.
_FLAGS = "-O1 -g1 -fsanitize=address,undefined -fsanitize-recover=undefined -Dalways_inline=unused"
_AHEAD = ("libasan.so", "libubsan.so", "libstdc++.so")


def compiled(jobs: int) -> Path:
    """The core, compiled anew where its sources have changed. Raises CalledProcessError."""
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    cmake, ninja = (shutil.which(name, path=programs) or name for name in ("cmake", "ninja"))
    where = [sys.executable, "-m", "nanobind", "--cmake_dir"]
    found = subprocess.run(where, check=True, capture_output=True, text=True)
    settings = {
        "CMAKE_BUILD_TYPE": "None", "FMHA_UNITS": "ON", "CMAKE_CXX_FLAGS": _FLAGS, "CMAKE_MAKE_PROGRAM": ninja,
        "Python_EXECUTABLE": sys.executable, "nanobind_DIR": found.stdout.strip(),
    }  # fmt: skip
    words = [f"-D{name}={value}" for name, value in settings.items()]
    subprocess.run([cmake, "-G", "Ninja", "-S", REPOSITORY, "-B", FOLDER, *words], check=True, stdout=sys.stderr)
    subprocess.run([ninja, "-C", FOLDER, f"-j{jobs}", "_core"], check=True, stdout=sys.stderr)
    return FOLDER / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"


def environment() -> dict[str, str]:
    """What a Python that loads it is started with. A process that a sanitizer ends says why on standard error."""
    compiler = os.environ.get("CXX", "c++")
    found = [
        subprocess.run([compiler, f"-print-file-name={name}"], check=True, capture_output=True, text=True).stdout
        for name in _AHEAD
    ]
    return os.environ | {
        "LD_PRELOAD": " ".join(path.strip() for path in found),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:detect_stack_use_after_return=0",
        "UBSAN_OPTIONS": os.environ.get("UBSAN_OPTIONS", "print_stacktrace=1:halt_on_error=1"),
        "PYTHONMALLOC": "malloc",  # which the sanitizer sees
    }


def main() -> None:
    """Becomes the fuzzer, on a core that is compiled with sanitizers."""
    core = compiled(int(os.environ.get("FUZZ_JOBS", len(os.sched_getaffinity(0)))))
    words = [sys.executable, "-m", "tools.fuzz", "--core", str(core), *sys.argv[1:]]
    os.execve(sys.executable, words, environment())


if __name__ == "__main__":
    main()
