"""A small configuration of every sm_90a variant on the GPU, held to float64, in one process: for compute-sanitizer.

    compute-sanitizer --report-api-errors no python -m fmha.harness.bench.gpus.each
    python -m fmha.harness.bench.gpus.each --part 0/4      # every fourth variant from the first on

A configuration is the least work among those of the suites that the harness gives to a variant, or one that asks for it
where they have none. Exits 1 where one is wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Final

from fmha.harness import account
from fmha.harness.bench.shapes.shape_cases import CASES
from fmha.harness.config import loader
from fmha.harness.contract.protocol import BuildResult, Variant
from fmha.harness.errors import InfrastructureError
from fmha.harness.judge.configuration import Configuration
from fmha.harness.judge.oracle.inputs import make_inputs
from fmha.harness.judge.oracle.measure import measure
from fmha.harness.judge.oracle.reference import reference
from fmha.harness.judge.random_cases import work
from fmha.harness.kernel_side.choice import ARCH
from fmha.harness.kernel_side.variants import VARIANTS, kind_of, knows_heads, knows_pages, variant_for
from fmha.harness.worker.compilers.build_kernels import build_variants
from fmha.harness.worker.devices.cuda import CudaDevice
from fmha.harness.worker.launch.run_attention import run_attention

ROOT: Final = Path(__file__).resolve().parents[3]
SUITES: Final = "cover-sm90,layouts,paged,ragged,seed,proven"
KEYS: Final = 200  # at least: more than one tile of any shape
KNOWN: Final = [variant for variant in VARIANTS if variant.arch == ARCH]
MOST_L2: Final = 5e-3  # that of O in bf16


def smallest(items: Iterable[Configuration]) -> Mapping[str, Configuration]:
    """Of each variant the configuration of least work among those that it runs."""
    found: dict[str, Configuration] = {}
    for item in items:
        variant = variant_for(item, ARCH)
        if isinstance(variant, str) or item.before or item.s_k < KEYS:
            continue
        if variant.name not in found or work(item) < work(found[variant.name]):
            found[variant.name] = item
    return found


def larger(variant: Variant) -> Iterator[Configuration]:
    """Those that a rule may give to a variant of which the suites have none, and some that name the rows of its CTA."""
    item = Configuration(variant.head_dim or 0, 1, 1, batch=2, output="bf16")
    item = replace(item, splits=3) if kind_of(variant) == "plain" else replace(item, mask="causal")
    item = replace(item, page_size=64, kv_lens="ragged") if knows_pages(variant) else item
    for t, s_k, heads, rows in product((2, 37, 300), (250, 300, 700), (6, 600), (0, variant.shape.row_tile)):
        yield replace(item, t=t, s_k=s_k, heads=heads, rows=rows, kv_heads=2 if knows_heads(variant) else 1)


def configurations(root: Path) -> Mapping[str, Configuration]:
    """One of each variant, by its name."""
    cells = loader.load(root, own=False).configurations(SUITES, 0)
    found = smallest([*(cell for cell in cells if isinstance(cell, Configuration)), *CASES])
    return {**smallest(item for variant in KNOWN if variant.name not in found for item in larger(variant)), **found}


def built(variants: Sequence[Variant]) -> list[BuildResult]:
    """Found among the account's builds, or made."""
    cores = len(os.sched_getaffinity(0))
    found = build_variants(ROOT, variants, account.folder("builds"), 600.0, cores, lambda _: None)
    for build in found:
        if build.error is not None:
            raise InfrastructureError(f"a kernel does not build: {build.error}")
    return found


def run(items: Sequence[tuple[Variant, Configuration]], builds: Sequence[BuildResult]) -> int:
    """How many are wrong."""
    device, wrong = CudaDevice(), 0
    for build, (variant, item) in zip(builds, items, strict=True):
        inputs = make_inputs(0, item)
        outputs = run_attention(device, device.load(Path(build.cubin)), variant, item, inputs)
        found = measure(item, outputs, reference(inputs))
        device.close()
        right = found.relative_l2 <= MOST_L2
        wrong += not right
        print(f"{'pass' if right else 'FAIL'} {variant.name} {item.id} {found.relative_l2:.1e}", flush=True)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default="0/1", metavar="I/N", help="every N-th variant from the I-th on")
    parser.add_argument("--list", action="store_true", help="say which configurations, and run nothing")
    parser.add_argument("--build-only", action="store_true", help="compile what they run, and run nothing")
    options = parser.parse_args()
    first, step = map(int, options.part.split("/"))
    found = configurations(ROOT)
    items = [(variant, found[variant.name]) for variant in KNOWN][first::step]
    if options.list:
        print("\n".join(f"{variant.name} {item.id}" for variant, item in items))
        return 0
    builds = built([variant for variant, _ in items])
    return 0 if options.build_only else min(run(items, builds), 1)


if __name__ == "__main__":
    sys.exit(main())
