"""The order of SASS: in which ptxas has a kernel's PTX instructions executed, and as what.

Each PTX instruction is given a line of its own by `.loc`, ptxas keeps lines in the cubin, and nvdisasm names the line
of each SASS instruction. Lines change nothing of what ptxas makes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fmha.emulator.ptx import Instruction
from fmha.harness.errors import InfrastructureError, UserError
from fmha.harness.see import listings
from fmha.harness.see.listings import Instructions
from fmha.harness.worker.compilers.nvcc import find_nvcc
from fmha.harness.worker.processes.groups import run_group

ANYWHERE: Final = -1  # the rank of what has no SASS of its own: it comes when its operands are there
_SECONDS: Final = 600.0
_SECTION: Final = re.compile(r"\.section\s+\.text\.(\S+?),")
_LINE: Final = re.compile(r'//## File "[^"]*", line (\d+)')
_INSTRUCTION: Final = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(.+?)\s*;")
_OF_LINES: Final = re.compile(r"\s*\.(loc|file)\b")


@dataclass(frozen=True, slots=True)
class Sass:
    """Of one entry: its instructions in order, each with the line of the PTX that it is of; 0 for none."""

    instructions: Instructions

    @property
    def by_line(self) -> Mapping[int, tuple[str, ...]]:
        """Instructions by the PTX line that they come from."""
        found: dict[int, list[str]] = {}
        for line, text in self.instructions:
            found.setdefault(line, []).append(text)
        return {line: tuple(texts) for line, texts in found.items() if line}

    def matched(self, sources: Sequence[Instruction]) -> float:
        """The share of the SASS instructions that are of a PTX instruction which the model knows."""
        lines = {source.line for source in sources}
        return sum(line in lines for line, _ in self.instructions) / max(1, len(self.instructions))

    def ranks(self, sources: Sequence[Instruction]) -> list[int]:
        """By pc, where the first of an instruction's SASS stands."""
        first: dict[int, int] = {}
        for at, (line, _) in enumerate(self.instructions):
            first.setdefault(line, at)
        return [first.get(source.line, ANYWHERE) for source in sources]


def find_nvdisasm() -> Path:
    """NVIDIA's disassembler: PATH's, the one beside nvcc, or the one that pip has installed. UserError without one."""
    beside = find_nvcc().path.resolve().parent
    packaged = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "bin"
    for folder in (os.environ.get("PATH", ""), str(beside), str(packaged)):
        if found := shutil.which("nvdisasm", path=folder):
            return Path(found)
    raise UserError(
        "--order sass: there is no nvdisasm",
        next_step="pip install nvidia-cuda-nvdisasm, or put CUDA's nvdisasm on PATH",
    )


def with_lines(ptx: str, lines: frozenset[int]) -> str:
    """The PTX with a `.loc` before each of these of its lines, and with no other."""
    out = []
    for number, line in enumerate(ptx.splitlines(), 1):
        if line.lstrip().startswith(".section"):  # those of its old lines, which end it
            break
        if not _OF_LINES.match(line):
            out.append(f".loc 1 {number} 1\n{line}" if number in lines else line)
        if line.startswith(".address_size"):
            out.append('.file 1 "kernel.ptx"')
    return "\n".join(out) + "\n"


def disassembled(ptx: str, arch: str, sources: Sequence[Instruction], where: Path) -> dict[str, Sass]:
    """What ptxas makes of each entry of the PTX at `where`, whose instructions are `sources`; InfrastructureError if it
    fails. ptxas and the disassembler take longer than the model does, so what they made once is kept."""
    nvdisasm, nvcc = find_nvdisasm(), find_nvcc()
    text = with_lines(ptx, frozenset(source.line for source in sources))
    reading = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    tools = [nvdisasm, *(tool for tool in (nvcc.path, nvcc.path.with_name("ptxas")) if tool.exists())]
    name = listings.name_of(text, f"{arch} {reading}", nvcc.version, tools)
    if (found := listings.take(name)) is None:
        found = read(_listing(text, arch, nvcc.path, nvdisasm, where))
        listings.keep(name, found)
    return {entry: Sass(instructions) for entry, instructions in found.items()}


def _listing(text: str, arch: str, nvcc: Path, nvdisasm: Path, where: Path) -> str:
    with tempfile.TemporaryDirectory(prefix="fmha-sass-") as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(text, encoding="utf-8")
        compiler = [str(nvcc), f"-arch={arch}", "-lineinfo", "-cubin", "-o", str(cubin), str(source)]
        said = ""
        for command in (compiler, [str(nvdisasm), "-g", "-c", str(cubin)]):
            done = run_group(command, cwd=Path(folder), limit_seconds=_SECONDS)
            if done.timed_out or done.returncode:
                raise InfrastructureError(f"{Path(command[0]).name}: {done.output.strip()[:400]}", where=str(where))
            said = done.output
    return said


def read(listing: str) -> dict[str, Instructions]:
    """The entries of a listing of nvdisasm -g -c."""
    found: dict[str, list[tuple[int, str]]] = {}
    here: list[tuple[int, str]] = []
    line = 0
    for text in listing.splitlines():
        if section := _SECTION.search(text):
            here, line = found.setdefault(section[1], []), 0
        elif at := _LINE.search(text):
            line = int(at[1])
        elif instruction := _INSTRUCTION.search(text):
            here.append((line, " ".join(instruction[1].split())))
    return {entry: tuple(each) for entry, each in found.items() if each}
