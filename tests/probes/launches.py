"""launches.cu, one program on a GPU and on the emulator: what the device runtime of CUDA answers, as words by name.

python -m tests.probes.launches build FOLDER        makes FOLDER/launches for a GPU of any architecture from sm_90 on
FOLDER/launches > GPU.txt                           on the GPU, with its driver alone
python -m tests.probes.launches compare [GPU.txt]   runs the same source here, and tells what differs

Without a file it is the answer of one H200, which is checked in: there nothing differs. Of another GPU the exit code of
`compare` is 1 where a probe differs whose meaning is documented. What no document says, under open/, is told and
counted apart.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.probes.store import CHECKED_IN
from tests.probes.textures import build, compare, read, run_emulator

SOURCE = Path(__file__).with_suffix(".cu")
# What one H200 has printed.
H200 = CHECKED_IN / "launches-h200.txt"
_FOR_GPU = ("-rdc=true", "-cudart", "static", "-gencode", "arch=compute_90,code=[sm_90,compute_90]")
_FOR_EMULATOR = ("-rdc=true", "-cudart", "shared", "-lineinfo", "-gencode", "arch=compute_90,code=[sm_90,compute_90]")
_LIBRARY = ("-lcudadevrt",)


def read_h200() -> dict[str, list[int]]:
    return read(H200.read_text())


def run_here(profile: str = "lenient") -> dict[str, list[int]]:
    return run_emulator(profile, (*_FOR_EMULATOR, *_LIBRARY), SOURCE)


def main() -> int:
    match sys.argv[1:]:
        case ["build", folder]:
            print(build(Path(folder) / "launches", (*_FOR_GPU, *_LIBRARY), SOURCE))
            return 0
        case ["compare", *paths] if len(paths) <= 1:
            gpu, ours = read(Path(paths[0]).read_text()) if paths else read_h200(), run_here()
            found = compare(gpu, ours)
            for difference in found:
                print(f"{difference}\n  GPU      {gpu[difference.name]}\n  emulator {ours.get(difference.name)}")
            print(f"{len(gpu)} probes, {len(found)} differ, {sum(d.documented for d in found)} of them documented")
            return int(any(d.documented for d in found))
        case _:
            print(__doc__)
            return 2


if __name__ == "__main__":
    sys.exit(main())
