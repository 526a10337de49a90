"""The tables of docs/understand/kernel.md, from the constants of the kernels: `python -m tests.kernel.tables`."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from fmha.harness.kernel_side.params import SM100_FEW_ROWS

KERNEL = Path(__file__).resolve().parents[2] / "kernel"
# Head_dim, whether P is in shared memory, and the query rows that a variant of fewer asks for.
Made = tuple[int, bool, int]
VARIANTS: tuple[Made, ...] = tuple((head_dim, path, 0) for head_dim in (64, 128, 256, 512) for path in (False, True))
FEW_ROWS: tuple[Made, ...] = tuple((head_dim, True, rows) for head_dim, rows in SM100_FEW_ROWS)
NAMES = """
    kRows kKeys kStages kBuffers kThreadsPerRow kOutputN kOutputParts kTmemScore kTmemOutput kTmemProbability kTmemUsed
    kScoreColumns kOutputColumns kProbabilityColumns kQueryBytes kKvTileBytes kProbabilityBytes kExchangeBytes
    kSmemQuery kSmemKv kSmemProbability kSmemExchange kSmemBarriers kSmemEnd kDynamicSharedBytes kBarriers kSlots
    kTmemColumns kCtasPerSm
"""

Constants = Mapping[str, int]
Row = tuple[str, Callable[[Constants], str]]


def _span(first: int, size: int) -> str:
    return f"{first}-{first + size - 1}" if size else ""


def _columns(name: str, columns: str) -> Callable[[Constants], str]:
    """Each buffer's columns of tensor memory."""
    return lambda c: ", ".join(
        _span(c[name] + i * c[columns], c[columns]) for i in range(c["kBuffers"] if c[columns] else 0)
    )


def _region(name: str, size: Callable[[Constants], int]) -> Callable[[Constants], str]:
    return lambda c: f"{c[name]}: {size(c)}" if size(c) else ""


def _instruction(c: Constants, n: int) -> str:
    return f"{c['kRows']} x {n} x 16" + (" ws" if c["kRows"] < 128 else "")


SHAPES: tuple[Row, ...] = (
    ("query rows a CTA", lambda c: str(c["kRows"])),
    ("keys a tile", lambda c: str(c["kKeys"])),
    ("tiles in the ring", lambda c: str(c["kStages"])),
    ("slots of the ring", lambda c: str(c["kSlots"])),
    ("threads a row", lambda c: str(c["kThreadsPerRow"])),
    ("MMA of S, M x N x K", lambda c: _instruction(c, c["kKeys"])),
    (
        "MMA of O",
        lambda c: (f"{c['kOutputParts']} of " if c["kOutputParts"] > 1 else "") + _instruction(c, c["kOutputN"]),
    ),
)
TMEM: tuple[Row, ...] = (
    ("S0, S1", _columns("kTmemScore", "kScoreColumns")),
    ("O", lambda c: _span(c["kTmemOutput"], c["kOutputColumns"])),
    ("P0, P1", _columns("kTmemProbability", "kProbabilityColumns")),
    ("columns used, of", lambda c: f"{c['kTmemUsed']}, {c['kTmemColumns']}"),
)
SMEM: tuple[Row, ...] = (
    ("Q", _region("kSmemQuery", lambda c: c["kQueryBytes"])),
    ("ring of K and V", _region("kSmemKv", lambda c: c["kStages"] * c["kKvTileBytes"])),
    ("P0, P1", _region("kSmemProbability", lambda c: c["kBuffers"] * c["kProbabilityBytes"])),
    ("exchange", _region("kSmemExchange", lambda c: c["kExchangeBytes"])),
    ("control words", _region("kSmemBarriers", lambda c: c["kSmemEnd"] - c["kSmemBarriers"])),
    ("launch asks for", lambda c: str(c["kDynamicSharedBytes"])),
    ("CTAs an SM", lambda c: str(c["kCtasPerSm"])),
)


def scope_of(made: Made) -> str:
    """The traits of a variant, in C++."""
    head_dim, in_shared, rows = made
    return f"fmha::FmhaTraits<{head_dim}, {str(in_shared).lower()}, {rows}>::"


def program() -> str:
    """C++ that prints NAMES of every variant, a line each."""
    lines = ['#include "traits.cuh"', "#include <cstdio>", "int main() {"]
    for made in (*VARIANTS, *FEW_ROWS):
        scope = scope_of(made)
        lines += [f'    std::printf("%d ", int({scope}{name}));' for name in NAMES.split()]
        lines.append('    std::printf("\\n");')
    return "\n".join([*lines, "}"])


def tables(printed: str) -> str:
    """Markdown, from what `program` prints."""
    values = [dict(zip(NAMES.split(), map(int, line.split()), strict=True)) for line in printed.splitlines()]
    paths = [f"{head_dim} {'smem' if in_shared else 'tmem'}" for head_dim, in_shared, _ in VARIANTS]
    few = [f"{head_dim}, {rows} rows" for head_dim, _, rows in FEW_ROWS]
    return "\n".join((*_tables(values[: len(paths)], paths), *_tables(values[len(paths) :], few)))


def _tables(values: list[dict[str, int]], heads: list[str]) -> Iterator[str]:
    for title, rows in (("shape", SHAPES), ("TMEM columns", TMEM), ("shared memory, offset: bytes", SMEM)):
        yield f"| {' | '.join([title, *heads])} |"
        yield f"|{'---|' * (len(heads) + 1)}"
        for name, cell in rows:
            yield f"| {' | '.join([name, *(cell(v) for v in values)])} |"
        yield ""


def _run() -> str:
    compiler = os.environ.get("CXX") or shutil.which("c++") or "g++"
    includes = [f"-I{KERNEL / 'include'}", f"-I{KERNEL}", f"-I{KERNEL / 'sm100'}"]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "tables.cpp"
        source.write_text(program())
        subprocess.run([compiler, "-std=c++17", *includes, "-o", f"{folder}/tables", source], check=True)
        return subprocess.run([f"{folder}/tables"], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    print(tables(_run()), end="")
