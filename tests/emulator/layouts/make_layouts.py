"""Writes layouts.json: what two independent libraries say of the tcgen05 layouts.

    python make_layouts.py CUTLASS_INCLUDE [EXTRA_INCLUDE ...]

needs g++, CuTe's headers (PyPI `nvidia-cutlass`: cutlass_library/source/include), libcu++ and CUDA's headers, and
`apache-tvm` in the Python that runs it. Each layout is linear in the bits of its two indices, which is checked for
every element here; the file keeps the images of the bits, and tests rebuild and compare every element.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


def bases(rows: int, columns: int, values: list[int]) -> dict[str, object]:
    """{rows, columns, origin, row images, column images}; raises when the table is not linear in the bits."""
    origin = values[0]
    row = [values[(1 << b) * columns] ^ origin for b in range(rows.bit_length() - 1)]
    column = [values[1 << b] ^ origin for b in range(columns.bit_length() - 1)]
    for r in range(rows):
        for c in range(columns):
            want = origin
            for b, image in enumerate(row):
                want ^= image * (r >> b & 1)
            for b, image in enumerate(column):
                want ^= image * (c >> b & 1)
            if want != values[r * columns + c]:
                raise ValueError(f"element {r}, {c} of {rows} x {columns}")
    return {"rows": rows, "columns": columns, "origin": origin, "row": row, "column": column}


def cute(includes: list[str]) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as scratch:
        program = Path(scratch) / "cute_layouts"
        flags = [f"-I{path}" for path in includes]
        subprocess.run(
            ["g++", "-std=c++17", "-w", *flags, str(HERE / "cute_layouts.cpp"), "-o", str(program)], check=True
        )
        text = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    tables = {}
    for line in text.splitlines():
        name, rows, columns, *values = line.split()
        tables[name] = bases(int(rows), int(columns), [int(v) for v in values])
    return tables


def tvm() -> dict[str, object]:
    from tvm.backend.cuda.tile_primitive.copy_async import tcgen05_cp
    from tvm.tirx import layout as tirx

    tables: dict[str, object] = {}
    for letter, rows in (("A", 128), ("B", 64), ("D", 128), ("E", 64), ("F", 64), ("G", 32)):
        for columns in (64, 256):
            layout = tirx.tmem_datapath_layout(letter, rows, columns)
            values = []
            for r in range(rows):
                for c in range(columns):
                    at = {str(k): int(v) for k, v in layout.apply(r, c, shape=[rows, columns]).items()}
                    values.append(at["TLane"] << 16 | at["TCol"])
            tables[f"d.{letter}.{rows}.{columns}"] = bases(rows, columns, values)
    # Row and column of a warpgroup's fragment -> thread << 16 | register.
    for shape, columns in (("32x32b", 64), ("16x64b", 64), ("16x128b", 64), ("16x256b", 64), ("16x256b", 256)):
        rows = 128 if shape == "32x32b" else 64
        layout = tirx.tcgen05_atom_layout(shape, (rows, columns), "float32")
        values = []
        for r in range(rows):
            for c in range(columns):
                at = {str(k): int(v) for k, v in layout.apply(r, c, shape=[rows, columns]).items()}
                thread = at["tid_in_wg"] if "tid_in_wg" in at else 32 * at["wid_in_wg"] + at["laneid"]
                values.append(thread << 16 | at["m"])
        tables[f"atom.{shape}.{columns}"] = bases(rows, columns, values)
    for shape, multicasts in tcgen05_cp._CP_SHAPE_MULTICASTS.items():
        for multicast in multicasts:
            lanes, replicas = tcgen05_cp._cp_lane_replica_pattern(shape, multicast)
            tables["cp." + ".".join(x for x in (shape, multicast) if x)] = _copy_lanes(lanes, replicas)
    return tables


def _copy_lanes(lanes: list[tuple[int, int]], replicas: list[tuple[int, int]]) -> dict[str, object]:
    """(extent, stride) lists, the last fastest -> the lane of each copy of each row: rows = copies x rows."""

    def expand(pattern: list[tuple[int, int]]) -> list[int]:
        out = [0]
        for extent, stride in pattern:
            out = [base + stride * k for base in out for k in range(extent)]
        return out

    values = [lane + copy << 16 for copy in expand(replicas) for lane in expand(lanes)]
    return bases(len(values), 1, values)


if __name__ == "__main__":
    tables = {"cute": cute(sys.argv[1:]), "tvm": tvm()}
    lines = [
        f'  "{library}": {{\n'
        + ",\n".join(f"    {json.dumps(name)}: {json.dumps(table)}" for name, table in found.items())
        + "\n  }"
        for library, found in tables.items()
    ]
    (HERE / "layouts.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
