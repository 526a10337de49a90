"""What the timing model says of others' kernels for Blackwell, beside what was published of them, in two halves: that
which constants may be fitted to, and that which is predicted (rows.yaml).

    python -m tools.blackwell FOLDER --learn-cuda CHECKOUT --kittens CHECKOUT --gluon TUTORIALS --flash4 PYTHON

FOLDER is for what is built. A source that is not given is left out and said to be. CHECKOUT: of gau-nernst/learn-cuda,
of HazyResearch/ThunderKittens. TUTORIALS: python/tutorials/gluon of Triton, with the Triton of its day and torch for
this Python. PYTHON: of an environment with flash-attn-4 and torch (tools/flash4.py).
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

from fmha import emulator
from fmha.emulator.timing.architecture import architecture
from fmha.emulator.timing.launch_time import Modelled
from fmha.harness.see.call_time import seconds_of
from tools import flash4, published
from tools.blackwell import gluon, kittens
from tools.blackwell.rows import HALVES, Row, ToldRow, rows, table

_product = functools.cache(published.compiled)


@functools.cache
def _attention(python: Path, kernel: flash4.Flash4Kernel) -> emulator.Module:
    module = flash4.compiled(python, kernel.head_dim)
    error = flash4.largest_error(kernel, module)
    print(f"flash4 head_dim {kernel.head_dim}: largest error of O at 2 x 600 tokens {error:.1e}", file=sys.stderr)
    return module


def modelled(row: Row, given: argparse.Namespace, folder: Path) -> Modelled:
    """The row's launch."""
    gpu, how = row.source.machine, row.how
    match row.source.name:
        case "gluon":
            said = gluon.timing(given.gluon.resolve(), gpu, how).modelled()
        case "kittens":
            said = kittens.modelled(kittens.build(given.kittens.resolve(), folder, how["program"]), gpu)
        case "learn-cuda":
            (kernel,) = [k for k in published.KERNELS if k.name == how["kernel"]]
            module = _product(given.learn_cuda, kernel.file, folder)
            said = published.timing(module, kernel, how["size"][0], gpu).modelled()
        case _:
            (attention,) = [k for k in flash4.KERNELS if k.head_dim == how["head_dim"]]
            module = _attention(given.flash4, attention)
            said = flash4.timing(attention, module, how["batch"], how["tokens"], gpu).modelled()
    return said


def told(given: argparse.Namespace) -> Iterator[ToldRow]:
    """Each row that its sources are there for, as the model has it."""
    left_out = {name for name in ("gluon", "kittens", "learn_cuda", "flash4") if getattr(given, name) is None}
    for row in rows():
        if row.source.name.replace("-", "_") in left_out or given.half not in (None, row.half):
            continue
        said = modelled(row, given, given.folder)
        rate = row.rate(seconds_of(architecture(row.source.machine), (said,)))
        yield ToldRow(row, rate, said.bound, said.forced)
        print(f"{row.half} {row.source.name} {row.name}: {rate:.0f}", file=sys.stderr, flush=True)
    for name in sorted(left_out):
        print(f"{name.replace('_', '-')} was left out: it was not given", file=sys.stderr)


def main() -> int:
    """Holds the model to published rows of Blackwell, as the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.blackwell", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    for name in ("--learn-cuda", "--kittens", "--gluon", "--flash4"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--half", choices=HALVES)
    given = parser.parse_args()
    given.folder = given.folder.resolve()
    given.folder.mkdir(parents=True, exist_ok=True)
    said = list(told(given))
    print("\n\n".join(table(half, said) for half in HALVES if any(t.row.half == half for t in said)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
