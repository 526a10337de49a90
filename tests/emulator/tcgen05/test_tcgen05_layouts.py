"""Layouts against CuTe's headers and tvm.tirx (layouts/make_layouts.py wrote what they say into layouts.json).

The other tcgen05 tests hold the machine to the formulas of this package (d_cells, position, Layout, COPIES,
scale_columns), which are held to the two libraries here, element by element.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.emulator.tcgen05.test_tcgen05_memory import COPIES, position
from tests.emulator.tcgen05.test_tcgen05_mma import scale_columns
from tests.emulator.tcgen05_numbers import Layout, d_cells, k_major, metadata_bits

TABLES = json.loads((Path(__file__).parents[1] / "layouts" / "layouts.json").read_text())
CASES = [(library, name) for library, tables in TABLES.items() for name in tables]
CUTE_SHAPES = {
    "32dp32b": "32x32b",
    "16dp64b": "16x64b",
    "16dp128b": "16x128b",
    "16dp256b": "16x256b",
    "16dp32b": "16x32bx2",
}
DATA_PATHS = {
    "A": {"m": 256, "pair": True},
    "B": {"m": 128, "pair": True},
    "D": {"m": 128},
    "E": {"m": 64, "ws": True},
    "F": {"m": 64},
    "G": {"m": 32, "ws": True},
}
ELEMENTS = {"half_t": 2, "uint8_t": 1, "float32": 4}


def table(library: str, name: str) -> NDArray[np.int64]:
    t = TABLES[library][name]

    def span(images: list[int]) -> NDArray[np.int64]:
        values = np.zeros(1, np.int64)
        for image in images:
            values = np.concatenate([values, values ^ image])
        return values

    return t["origin"] ^ span(t["row"])[:, None] ^ span(t["column"])[None, :]


def loads(name: str, rows: int, columns: int) -> NDArray[np.int64]:
    kind, cute_shape, _ = name.split(".")
    shape, step = CUTE_SHAPES[cute_shape], 2 if kind == "ld16" else 1
    out = np.zeros((rows, columns), np.int64)
    for thread in range(rows):
        for register in range(columns):
            lane, column = position(shape, thread, register)
            # CuTe splits .16x32bx2 so that its halves are adjacent.
            column += columns if shape == "16x32bx2" and thread >= 16 else 0
            out[thread, register] = lane << 16 | column * step
    return out


def atoms(name: str, rows: int, columns: int) -> NDArray[np.int64]:
    """(row, column) of a warpgroup's fragment -> thread << 16 | register, by inverting `position`."""
    shape = name.split(".")[1]
    lanes = 32 if shape == "32x32b" else 16
    out = np.full((rows, columns), -1)
    for thread in range(128):
        for register in range(rows * columns // 128):
            lane, column = position(shape, thread % 32, register)
            out[thread // 32 * lanes + lane, column] = thread << 16 | register
    return out


def data_path(name: str, rows: int, columns: int) -> NDArray[np.int64]:
    kind, letter = name.split(".")[:2]
    arguments = dict(DATA_PATHS[letter])
    cells = d_cells(arguments.pop("m"), max(columns, 64), **arguments)[:rows, :columns]
    assert not cells[..., 0].any(), "the first CTA's rows"
    # A in tensor memory: the lanes of D, eight columns.
    columns_of = np.arange(columns)[None, :] if kind == "a" else cells[..., 2]
    return cells[..., 1] << 16 | columns_of


def scales(rows: int, columns: int) -> NDArray[np.int64]:
    """Byte positions, found by marking one scale at a time; the copies of row r are the rows r + n p."""
    n = rows // 4
    out = np.full((rows, columns), -1)
    for r in range(n):
        for s in range(columns):
            codes = np.zeros((n, columns), np.int64)
            codes[r, s] = 0xFF
            for lane, byte in np.argwhere(scale_columns(codes, 0).view(np.uint8)):
                out[r + n * (lane // 32), s] = lane << 16 | byte
    return out


def copies(name: str, rows: int, columns: int) -> NDArray[np.int64]:
    shape = name.removeprefix("cp.")
    source_rows, _, lanes_of = COPIES[shape]
    first = 5 if shape == "4x256b" else 0  # the lane that the test of tcgen05.cp copies to
    lanes = [lanes_of(r)[copy] - first for copy in range(rows // source_rows) for r in range(source_rows)]
    return np.array(lanes)[:, None] << 16 | np.arange(columns)[None, :]


def shared(name: str, rows: int, columns: int) -> NDArray[np.int64]:
    """The canonical layout with the strides that CuTe's tiling of `rows` gives it."""
    _, atom, type_name = name.split(".")
    size, (major, swizzle) = ELEMENTS[type_name], atom.split("_", 1)
    out = np.zeros((rows, columns), np.int64)
    for mn in range(rows):
        for k in range(columns):
            out[mn, k] = layout_of(major, swizzle, size).address(mn, k * size)
    return out


def layout_of(major: str, swizzle: str, size: int) -> Layout:
    if major == "K":
        if swizzle == "INTER":
            return Layout(0, 16, (0, 4, 3), leading=128 * 16, stride=128)
        return k_major(int(swizzle.removeprefix("SW")))
    code, span, function = {
        "INTER": (0, 16, (0, 4, 3)),
        "SW32": (6, 32, (1, 4, 3)),
        "SW64": (4, 64, (2, 4, 3)),
        "SW128": (2, 128, (3, 4, 3)),
        "SW128_32B": (1, 128, (2, 5, 2)),
    }[swizzle]
    atom = span * (4 if code == 1 else 8)
    along, across = atom, atom * (128 * size // span)  # to the next atom of MN, of K
    leading, stride = (across, along) if code == 0 else (along, across)
    return Layout(code, span, function, True, size, leading=leading, stride=stride)


FORMULAS = {
    "ld": loads,
    "ld16": loads,
    "atom": atoms,
    "d": data_path,
    "a": data_path,
    "sf": lambda name, rows, columns: scales(rows, columns),
    "cp": copies,
    "smem": shared,
    "e": lambda name, rows, columns: metadata_bits(name.split(".")[1]),
}


@pytest.mark.parametrize(("library", "name"), CASES)
def test_layout(library, name):
    want = table(library, name)
    got = FORMULAS[name.split(".")[0]](name, *want.shape)
    assert (got == want).all(), f"{np.count_nonzero(got != want)} of {want.size} elements"


def test_every_family_is_compared_with_both_libraries_or_is_only_in_one():
    families = {library: {name.split(".")[0] for name in tables} for library, tables in TABLES.items()}
    assert families == {"cute": {"ld", "ld16", "d", "a", "sf", "cp", "smem", "e"}, "tvm": {"d", "atom", "cp"}}
    assert sum(t["rows"] * t["columns"] for tables in TABLES.values() for t in tables.values()) > 300_000
