"""Whether two trees of the sources make the same code: `python -m tools.same_code BEFORE [AFTER]`.

Compiles every kernel of an architecture out of both, to PTX without line numbers, and compares what is left without
comments. Where PTX differs the machine code is compared. The variants are those of this checkout, so both trees must
know their defines; AFTER is this checkout unless it is named. Exits 1 where a variant differs.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from fmha.harness.contract.protocol import Variant
from fmha.harness.kernel_side.recipe import flags
from fmha.harness.kernel_side.variants import VARIANTS
from fmha.harness.worker.compilers.nvcc import find_nvcc

_COMMENT: Final = re.compile(r"//[^\n]*")


def ptx_of(tree: Path, variant: Variant, build: Path) -> Path:
    """The PTX of `variant` out of `tree`, kept in `build`; RuntimeError with the compiler's words where it is none."""
    out = build / f"{variant.name}.ptx"
    chosen = [flag for flag in flags(variant) if flag != "-lineinfo"]
    command = [str(find_nvcc().path), *chosen, "-ptx", "-o", str(out), variant.source]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{variant.name}: {done.stderr.strip()[:2000]}")
    return out


def stripped(ptx: Path) -> str:
    """What is left of PTX without comments and empty lines."""
    lines = (line.rstrip() for line in _COMMENT.sub("", ptx.read_text(encoding="utf-8")).splitlines())
    return "\n".join(line for line in lines if line)


def machine_code(ptx: Path, arch: str) -> str:
    """The digest of the machine code that ptxas makes of it: of the cubin's sections of code, by name."""
    cubin = ptx.with_suffix(".cubin")
    ptxas = find_nvcc().path.resolve().parent / "ptxas"
    subprocess.run([str(ptxas), "-O3", f"-arch={arch}", "-o", str(cubin), str(ptx)], check=True)
    digest = hashlib.sha256()
    for name, code in sorted(sections(cubin.read_bytes())):
        if name.startswith(".text"):
            digest.update(name.encode() + code)
    return digest.hexdigest()


def sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of an ELF file's sections, of 64 bits and little-endian, as cubins are."""
    (table,), (size, count, names) = struct.unpack_from("<Q", elf, 40), struct.unpack_from("<3H", elf, 58)
    rows = [struct.unpack_from("<IIQQQQ", elf, table + i * size) for i in range(count)]
    strings = rows[names][4]
    for name, kind, _, _, offset, length in rows:
        begin = strings + name
        yield elf[begin : elf.index(0, begin)].decode(), b"" if kind == 8 else elf[offset : offset + length]


def _told(before: Path, after: Path, build: Path, variant: Variant) -> str:
    """`same`, `machine code` where PTX alone differs, or `differs`."""
    made = []
    for name, tree in (("before", before), ("after", after)):
        folder = build / name
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder / f"{variant.name}.ptx"
        made.append(kept if name == "before" and kept.exists() else ptx_of(tree, variant, folder))
    if stripped(made[0]) == stripped(made[1]):
        return "same"
    codes = {machine_code(ptx, variant.arch) for ptx in made}
    return "machine code" if len(codes) == 1 else "differs"


def main() -> int:
    """Compares the PTX of two trees' kernels. 1 where they differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path, nargs="?", default=Path.cwd())
    parser.add_argument("--build", type=Path, required=True, help="where what is compiled is kept")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--only", default="", help="variants whose names match this expression")
    parser.add_argument("--jobs", type=int, default=2)
    chosen = parser.parse_args()
    variants = [item for item in VARIANTS if item.arch == chosen.arch and re.search(chosen.only, item.name)]
    with ThreadPoolExecutor(chosen.jobs) as pool:
        told = list(pool.map(lambda item: _told(chosen.before, chosen.after, chosen.build, item), variants))
    for variant, word in zip(variants, told, strict=True):
        if word != "same":
            print(f"{variant.name}: {word}")
    print(", ".join(f"{told.count(word)} {word}" for word in ("same", "machine code", "differs")))
    return int("differs" in told)


if __name__ == "__main__":
    sys.exit(main())
