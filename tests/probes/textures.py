"""textures.cu, one program on a GPU and on the emulator: what each fetch gives, as words by name.

python -m tests.probes.textures build FOLDER        makes FOLDER/textures for a GPU of any architecture from sm_90 on
FOLDER/textures > GPU.txt                           on the GPU, with its driver alone
python -m tests.probes.textures compare [GPU.txt]   runs the same source here, and tells what differs

Without a file it is the answer of one H100, which is checked in: there nothing differs. Of another GPU the exit code of
`compare` is 1 where a probe differs whose meaning is documented. What no document says, under open/, is told and
counted apart.
"""

from __future__ import annotations

import lzma
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.compiled import nvcc
from tests.probes.store import CHECKED_IN

SOURCE = Path(__file__).with_suffix(".cu")
# What one H100 80GB has printed.
H100 = CHECKED_IN / "textures-h100.txt.xz"
# What a GPU runs, and what the emulator takes: PTX, and a libcudart that can be replaced.
_FOR_GPU = ("-cudart", "static", "-gencode", "arch=compute_90,code=[sm_90,compute_90]")
_FOR_EMULATOR = ("-cudart", "shared", "-lineinfo", "-gencode", "arch=compute_90,code=compute_90")


def build(program: Path, flags: tuple[str, ...], source: Path = SOURCE) -> Path:
    program.parent.mkdir(parents=True, exist_ok=True)
    return nvcc(program, source, "-std=c++17", *flags)


def read(text: str) -> dict[str, list[int]]:
    """What the program has printed: a probe a line, its name and words. The emulator's verdict follows, and is none."""
    lines = (line.split() for line in text.splitlines() if "/" in line.partition(" ")[0])
    return {name: [int(word, 16) for word in words] for name, *words in lines}


def read_h100() -> dict[str, list[int]]:
    return read(lzma.decompress(H100.read_bytes()).decode())


def run_emulator(
    profile: str = "lenient", flags: tuple[str, ...] = _FOR_EMULATOR, source: Path = SOURCE
) -> dict[str, list[int]]:
    """The program on the emulator. RuntimeError where it does not end well, or has a hazard."""
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder) / source.stem, flags, source)
        command = [
            sys.executable,
            "-m",
            "fmha",
            "emulate",
            "--arch",
            "sm_90a",
            "--profile",
            profile,
            "--",
            str(program),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return read(done.stdout)


@dataclass(frozen=True, slots=True)
class Difference:
    name: str
    words: int  # that differ
    of: int
    first: str

    @property
    def documented(self) -> bool:
        return not self.name.startswith("open/")

    def __str__(self) -> str:
        return f"{self.name}: {self.words} of {self.of} words differ; {self.first}"


def compare(gpu: dict[str, list[int]], ours: dict[str, list[int]]) -> list[Difference]:
    """Probes of the GPU's answer that differ here, or are missing. Others were not asked of it."""
    found = []
    for name, a in sorted(gpu.items()):
        b = ours.get(name, [])
        if a == b:
            continue
        if len(a) != len(b):
            found.append(Difference(name, max(len(a), len(b)), len(a), f"{len(a)} words of the GPU, {len(b)} here"))
            continue
        wrong = [i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
        at = wrong[0]
        found.append(Difference(name, len(wrong), len(a), f"word {at}: GPU {a[at]:#x}, emulator {b[at]:#x}"))
    return found


def main() -> int:
    match sys.argv[1:]:
        case ["build", folder]:
            print(build(Path(folder) / "textures", _FOR_GPU))
            return 0
        case ["compare", *paths] if len(paths) <= 1:
            gpu = read(Path(paths[0]).read_text()) if paths else read_h100()
            ours = run_emulator()
            found = compare(gpu, ours)
            for difference in found:
                print(difference)
            for kind, documented in (("documented", True), ("open", False)):
                names = [name for name in gpu if name.startswith("open/") != documented]
                differing = sum(d.documented == documented for d in found)
                words = sum(len(gpu[name]) for name in names)
                print(f"{kind}: {len(names)} probes of {words} words, {differing} differ")
            unasked = [words for name, words in ours.items() if name not in gpu]
            print(f"not asked: {len(unasked)} probes of {sum(map(len, unasked))} words")
            return int(any(d.documented for d in found))
        case _:
            print(__doc__)
            return 2


if __name__ == "__main__":
    sys.exit(main())
