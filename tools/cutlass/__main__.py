"""CUTLASS's matrix products for sm_90a, measured on an H200 or H100 and modelled:

    python -m tools.cutlass build FOLDER --source CUTLASS   # needs nvcc
    python -m tools.cutlass measure FOLDER --output FILE    # needs the GPU; --fresh: of sizes not tried before
    python -m tools.cutlass model FOLDER FILE               # needs neither; --json writes the table's rows
    python -m tools.cutlass predict FOLDER --output FILE    # of the fresh sizes, before they are measured

CUTLASS is a checkout of https://github.com/NVIDIA/cutlass, or `cutlass_library/source` of the wheel nvidia-cutlass.
None of its kernels was looked at when the timing model was made, and no constant is fitted to them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from fmha.emulator import programs
from fmha.harness.worker.compilers.nvcc import find_nvcc

LAUNCH_US: Final = (
    0.6  # of 132 CTAs that wait for the launch before them, measured on an H200 by tools/timing/launch.cu
)
SOURCE: Final = Path(__file__).with_name("cutlass_gemm.cu")


@dataclass(frozen=True, slots=True)
class CutlassKernel:
    """`tile` is M, N and K of a CTA; `cluster` CTAs along M share B by multicast. `schedule` is CUTLASS's name for how
    warps divide the work, without what all such names begin with."""

    element: str
    tile: tuple[int, int, int]
    cluster: int
    schedule: str

    @property
    def name(self) -> str:
        """The name of its program."""
        return "-".join(
            (self.element, "x".join(map(str, self.tile)), f"c{self.cluster}", self.schedule or "one")
        ).lower()

    @property
    def macros(self) -> tuple[str, ...]:
        """The macros that it is compiled with."""
        fast = "FP8FastAccum" if self.element == "e4m3" else ""
        values = {
            **dict(zip(("M", "N", "K"), map(str, self.tile), strict=True)),
            "CLUSTER": str(self.cluster),
            "ELEMENT": {"f16": "cutlass::half_t", "e4m3": "cutlass::float_e4m3_t"}[self.element],
            "MAINLOOP": f"KernelTmaWarpSpecialized{self.schedule}{fast}",
            "EPILOGUE": f"TmaWarpSpecialized{'Cooperative' if self.schedule == 'Cooperative' else ''}",
        }
        return tuple(f"-DGEMM_{name}={value}" for name, value in values.items())


KERNELS: Final = (
    CutlassKernel("f16", (128, 128, 64), 1, ""),
    CutlassKernel("f16", (64, 128, 64), 1, "Pingpong"),
    CutlassKernel("f16", (64, 256, 64), 2, "Pingpong"),
    CutlassKernel("f16", (128, 128, 64), 1, "Cooperative"),
    CutlassKernel("f16", (128, 256, 64), 2, "Cooperative"),
    CutlassKernel("f16", (256, 128, 64), 2, "Cooperative"),
    CutlassKernel("e4m3", (64, 128, 128), 1, "Pingpong"),
    CutlassKernel("e4m3", (128, 128, 128), 2, "Cooperative"),
)
# M, N, K: squares, few rows against wide weights, and a product that is mostly its epilogue.
SIZES: Final = ((1024,) * 3, (2048,) * 3, (4096,) * 3, (8192,) * 3, (256, 8192, 4096), (8192, 8192, 256))
# Named once the model of what does not fit into L2 was made, before any was measured. Operands of the first three fit
# into the 50 MB of an H100's L2; of the others those of 5120 in e4m3 come near, and none else.
FRESH: Final = (
    (4096, 2048, 2048),
    (2560, 5120, 1024),
    (8192, 1024, 1536),
    (5120, 5120, 5120),
    (6144, 4096, 7168),
    (7168, 12288, 3072),
    (12288, 6144, 10240),
    (10240, 10240, 6144),
    (3072, 12288, 12288),
    (12288, 3072, 12288),
)


def build(folder: Path, source: Path) -> None:
    """A program for each kernel; CalledProcessError where one does not compile."""
    folder.mkdir(parents=True, exist_ok=True)
    nvcc = str(find_nvcc().path)
    # Without NDEBUG the device's assertions are calls, across which ptxas does not keep wgmma in flight.
    fixed = ("-std=c++17", "-O3", "-DNDEBUG", "-w", "-cudart", "shared", "--expt-relaxed-constexpr")
    target = ("-gencode", "arch=compute_90a,code=[sm_90a,compute_90a]")
    headers = (f"-I{source / 'include'}", f"-I{source / 'tools/util/include'}")

    def one(kernel: CutlassKernel) -> None:
        words = (nvcc, *fixed, *target, *headers, *kernel.macros, str(SOURCE), "-o", str(folder / kernel.name))
        subprocess.run(words, check=True)
        print(kernel.name, flush=True)

    with ThreadPoolExecutor(2) as pool:  # 3 GB each
        list(pool.map(one, KERNELS))


def measured(folder: Path, sizes: Sequence[tuple[int, int, int]]) -> Iterator[dict[str, Any]]:
    """Times on this machine's GPU, microseconds."""
    for kernel in KERNELS:
        for size in sizes:
            words = (str(folder / kernel.name), *map(str, size), "--time")
            said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
            yield {"kernel": kernel.name, "size": list(size), "us": float(said)}


def modelled_us(folder: Path, gpu: str, kernel: str, size: Sequence[int]) -> float:
    """Microseconds that the model gives the same program."""
    options = programs.Options("sm_90a", timing="sampled", timed_as=gpu)
    (launch,) = programs.run_program((str(folder / kernel), *map(str, size)), options).seen.launches
    assert launch.modelled is not None
    return LAUNCH_US + launch.modelled.seconds * 1e6


def modelled(folder: Path, gpu: str, rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rows with `modelled_us`, and with `error` where they are measured."""
    kernels, sizes = [row["kernel"] for row in rows], [row["size"] for row in rows]
    with ProcessPoolExecutor(2) as pool:
        for row, us in zip(rows, pool.map(partial(modelled_us, folder, gpu), kernels, sizes), strict=True):
            yield row | {"modelled_us": us} | ({"error": us / row["us"] - 1} if "us" in row else {})


def timed_as(gpu: str) -> str:
    """The timing model's name for a GPU, by what nvidia-smi calls it."""
    return next(name for name in ("h200", "h100") if name.upper() in gpu)


def in_order(rows: Sequence[dict[str, Any]], apart: float) -> tuple[int, int]:
    """Of the pairs of kernels of one element at one size that were measured `apart`: how many are modelled in their
    order, and how many there are."""
    right = pairs = 0
    for a, b in combinations(rows, 2):
        if a["size"] != b["size"] or a["kernel"].split("-")[0] != b["kernel"].split("-")[0]:
            continue
        if max(a["us"], b["us"]) < (1 + apart) * min(a["us"], b["us"]):
            continue
        pairs += 1
        right += (a["us"] < b["us"]) == (a["modelled_us"] < b["modelled_us"])
    return right, pairs


def show(coming: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Prints the table, each row as it comes, and what they come to; returns the rows."""
    print("| kernel | M, N, K | measured, us | modelled | error |\n|---|---|---|---|---|")
    rows = []
    for row in coming:
        rows.append(row)
        size = ", ".join(map(str, row["size"]))
        cells = (row["kernel"], size, f"{row['us']:.1f}", f"{row['modelled_us']:.1f}", f"{row['error']:+.0%}")
        print(f"| {' | '.join(cells)} |", flush=True)
    errors = [abs(row["error"]) for row in rows]
    print(f"\n{len(errors)} shapes: mean error {sum(errors) / len(errors):.1%}, worst {max(errors):.0%}")
    for apart in (0.0, 0.02, 0.05):
        right, pairs = in_order(rows, apart)
        print(f"measured apart by at least {apart:.0%}: {right} of {pairs} pairs in order")
    return rows


def main() -> int:
    """Builds, times or models CUTLASS's kernels, as the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, prog="python -m tools.cutlass", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("build", "measure", "model", "predict"):
        verbs.add_parser(verb).add_argument("folder", type=Path, help="of the programs")
    verbs.choices["build"].add_argument("--source", type=Path, required=True, help="CUTLASS's folder")
    for verb in ("measure", "predict"):
        verbs.choices[verb].add_argument("--output", type=Path, required=True)
    verbs.choices["measure"].add_argument("--fresh", action="store_true", help="of the sizes that predict takes")
    verbs.choices["predict"].add_argument("--gpu", choices=("h200", "h100"), default="h200")
    verbs.choices["model"].add_argument("record", type=Path, help="what measure wrote")
    verbs.choices["model"].add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    if given.verb == "build":
        build(given.folder, given.source)
    elif given.verb == "measure":
        record = {"gpu": gpu(), "rows": list(measured(given.folder, FRESH if given.fresh else SIZES))}
        given.output.write_text(json.dumps(record, indent=1) + "\n")
    elif given.verb == "predict":
        asked = [{"kernel": kernel.name, "size": list(size)} for kernel in KERNELS for size in FRESH]
        predicted = []
        for row in modelled(given.folder, given.gpu, asked):
            predicted.append(row)
            print(row["kernel"], *row["size"], f"{row['modelled_us']:.1f} us", flush=True)
        given.output.write_text(json.dumps({"gpu": given.gpu, "rows": predicted}, indent=1) + "\n")
    else:
        record = json.loads(given.record.read_text())
        rows = show(modelled(given.folder, timed_as(record["gpu"]["name"]), record["rows"]))
        if given.json:
            given.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def gpu() -> dict[str, str]:
    """Its name, and the driver's version, as nvidia-smi says them."""
    words = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "-i", "0")
    name, driver = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip().split(", ")
    return {"name": name, "driver": driver}


if __name__ == "__main__":
    sys.exit(main())
