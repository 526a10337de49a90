"""Runs mufu.cu on the GPU: python -m tests.probes.mufu_gpu CUBIN OUT

OUT/mufu.json: the digests of every row. OUT/mufu-N.npz: the results that mufu_fit.py fits, as differences of
neighbours. Needs NumPy and libcuda only.
"""

from __future__ import annotations

import ctypes
import io
import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from tests.probes.case import Array
from tests.probes.run_gpu import Driver, provenance

ROWS = tuple(
    re.findall(r"^(?:SINGLE|WORD|QUOTIENT|UPPER)\((\w+),", Path(__file__).with_name("mufu.cu").read_text(), re.M)
)
BLOCK = 1 << 24  # arguments of a digest
BLOCKS = (1 << 32) // BLOCK
THREADS, COUNT = 128, 1 << 14  # of a CTA; arguments of a thread
OCTAVE = 1 << 23  # arguments
# Function: the octaves of its arguments, by the exponent, that hold what there is to know of it.
DUMPS = {
    "ex2": (0,), "lg2": (0,), "rcp": (0,), "rsqrt": (0, 1), "sqrt": (0, 1), "sin": range(-8, 3), "cos": range(-8, 3),
    "tanh": range(-8, 3),
}  # fmt: skip


def _launch(driver: Driver, cubin: Path, entry: str, ctas: int, threads: int, words: list[int], out: Array) -> Array:
    address = driver.upload(out)
    arguments = [*(ctypes.c_uint32(w) for w in words), ctypes.c_uint64(address)]
    pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
    function = driver.function(cubin, entry)
    driver.call("cuLaunchKernel", function, ctas, 1, 1, threads, 1, 1, 0, None, pointers, None)
    driver.call("cuCtxSynchronize")
    result = driver.download(address, out.nbytes).view(out.dtype)
    driver.free(address)
    return result


def main(cubin: Path, out: Path) -> None:
    driver = Driver()
    digests = {}
    for row in ROWS:
        sums, ctas = np.zeros(BLOCKS, np.uint64), (1 << 32) // (THREADS * COUNT)
        found = _launch(driver, cubin, f"digest_{row}", ctas, THREADS, [0, COUNT], sums)
        digests[row] = " ".join(f"{int(x):016x}" for x in found)
    (out / "mufu.json").write_text(json.dumps({"provenance": provenance(), "digests": digests}, indent=1) + "\n")

    def dump(item: tuple[str, int]) -> tuple[str, bytes]:
        name, octave = item
        data = io.BytesIO()
        np.savez_compressed(
            data, first=results[item][0], steps=np.diff(results[item].astype(np.int64)).astype(np.int32)
        )
        return f"{name}_{octave}", data.getvalue()

    results = {
        (name, octave): _launch(
            driver, cubin, f"dump_{name}", OCTAVE >> 8, 256, [127 + octave << 23], np.zeros(OCTAVE, np.uint32)
        )
        for name, octaves in DUMPS.items()
        for octave in octaves
    }
    with ThreadPoolExecutor() as pool:
        packed = list(pool.map(dump, results))
    for part in range(4):
        np.savez(out / f"mufu-{part}.npz", **{n: np.frombuffer(b, np.uint8) for n, b in packed[part::4]})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
