"""A driver that keeps what it is asked to launch, compiled, and what harness/kernel_side/launch.py asks of a device."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fmha.harness.contract.device import LaunchConfig, LaunchReport, TensorMapSpec
from fmha.harness.kernel_side import params

SOURCE = """
#include <cstdint>
#include <cstring>
struct Launch { uint32_t grid[3], block[3], shared, overlaps; uint64_t stream, function; unsigned char params[896]; };
extern "C" {
Launch launches[16];
int count = 0, refused_encode = 0;
uint64_t context = 0xC0;
struct Config { uint32_t words[7]; void* stream; const int32_t* attributes; uint32_t count; };
int launch(const Config* config, void* function, void** arguments, void** extra) {
    Launch& l = launches[count++ % 16];
    std::memcpy(&l, config->words, sizeof config->words);
    l.overlaps = 0;
    for (uint32_t i = 0; i < config->count; ++i)  // of 72 bytes: programmatic stream serialization, allowed
        l.overlaps |= config->attributes[18 * i] == 6 && config->attributes[18 * i + 2] == 1;
    l.stream = (uint64_t)config->stream;
    l.function = (uint64_t)function;
    std::memcpy(l.params, arguments[0], sizeof l.params);
    return extra ? 1 : 0;
}
int encode(uint64_t* map, int type, uint32_t rank, uint64_t address, const uint64_t* dims, const uint64_t* strides,
           const uint32_t* box, const uint32_t* steps, int interleave, int swizzle, int promotion, int fill) {
    std::memset(map, 0, 128);
    const uint32_t kinds[] = {(uint32_t)type, rank, (uint32_t)interleave, (uint32_t)swizzle, (uint32_t)promotion,
                              (uint32_t)fill};
    for (int i = 0; i < 6; ++i) map[0] |= (uint64_t)kinds[i] << 8 * i;
    map[1] = address;
    for (uint32_t i = 0; i < rank; ++i) map[2 + i] = dims[i] << 8 | steps[i];
    for (uint32_t i = 0; i + 1 < rank; ++i) map[7 + i] = strides[i];
    for (uint32_t i = 0; i < rank; ++i) map[11 + i] = box[i];
    return refused_encode;
}
int move(uint64_t* map, uint64_t address) { map[1] = address; return 0; }
int current(uint64_t* which) { *which = context; return 0; }
int enter(uint64_t which) { context = which; return 0; }
}
"""
KINDS = (
    9,
    0,
    0,
    3,
    2,
    0,
)  # bf16; rank; no interleave, 128-byte swizzle, promotion of 128 bytes, zeros beyond the edges


class Launched(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("shared", ctypes.c_uint32),
        ("overlaps", ctypes.c_uint32), ("stream", ctypes.c_uint64), ("function", ctypes.c_uint64),
        ("params", ctypes.c_ubyte * params.PARAMS_BYTES),
    )  # fmt: skip

    def told(self) -> tuple[Any, ...]:
        return tuple(self.grid), tuple(self.block), self.shared, bool(self.overlaps), self.function, bytes(self.params)


@dataclass
class Driver:
    library: ctypes.CDLL

    def address(self, name: str) -> int:
        return ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value or 0

    def entries(self) -> tuple[int, ...]:
        return tuple(self.address(name) for name in ("launch", "move", "current", "enter", "encode"))

    def number(self, name: str) -> ctypes.c_int:
        return ctypes.c_int.in_dll(self.library, name)

    def launches(self) -> list[tuple[Any, ...]]:
        """Those since the last time: grid, block, shared memory, whether it overlaps, function, parameters."""
        count = self.number("count")
        made = (Launched * 16).in_dll(self.library, "launches")
        found = [made[i].told() for i in range(count.value)]
        count.value = 0
        return found


def compiled(folder: Path) -> Driver:
    (folder / "driver.cpp").write_text(SOURCE)
    subprocess.run(["c++", "-O1", "-shared", "-fPIC", "driver.cpp", "-o", "driver.so"], cwd=folder, check=True)
    return Driver(ctypes.CDLL(str(folder / "driver.so")))


@dataclass
class Recorder:
    """A device that keeps launches. `functions` are those of entries."""

    functions: dict[str, int]
    name: str = "cuda"
    launches: list[tuple[Any, ...]] = field(default_factory=list)

    def encode_tensor_map(self, spec: TensorMapSpec) -> bytes:
        assert (spec.dtype, spec.swizzle) == ("bf16", "128B")
        rank = len(spec.global_dim)
        kinds = sum(kind << 8 * place for place, kind in enumerate((KINDS[0], rank, *KINDS[2:])))
        dims = [size << 8 | step for size, step in zip(spec.global_dim, spec.element_strides, strict=True)]
        words = [kinds, spec.address, *dims, *[0] * (5 - rank), *spec.global_strides, *[0] * (5 - rank), *spec.box_dim]
        return struct.pack("<16Q", *words, *[0] * (16 - len(words)))

    def launch(self, module: Any, entry: str, config: LaunchConfig, given: bytes) -> LaunchReport:
        assert config.cluster == (1, 1, 1)
        function = self.functions[entry]
        self.launches.append((config.grid, config.block, config.shared_bytes, config.overlaps, function, given))
        return LaunchReport()
