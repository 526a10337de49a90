"""What the timing model says of a Triton kernel that was measured on an H200:
`python -m fmha.harness.bench.trials.triton_times results/bench-h200.json`. It needs Triton and torch.

The kernel is that of fmha.harness.bench.peers.split_kv, in the configuration that the record has as its fastest. It is
compiled by the Triton that is installed, which need not be the one that was measured.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from fmha import emulator
from fmha.emulator.timing.architecture import architecture
from fmha.harness.bench.peers import split_kv
from fmha.harness.bench.trials.trial import problem_of
from fmha.harness.see.call_time import seconds_of
from fmha.harness.see.lengths import numbers
from fmha.harness.triton_ptx import ptx_for_cubin

GPU: Final = "h200"
_CONFIGURATION: Final = re.compile(r"splits=(\d+) rows=(\d+) keys=(\d+) warps=(\d+) stages=(\d+)")


def compiled(function: Any, types: Mapping[str, str], constants: Mapping[str, Any], **options: int) -> Any:
    """As Triton compiles it for a launch: pointers and sizes are divisible by 16."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kinds = {name: types.get(name, "constexpr") for name in function.arg_names}
    even = {(k,): [["tt.divisibility", 16]] for k, kind in enumerate(kinds.values()) if kind[0] == "*" or kind == "i32"}
    source = ASTSource(function, kinds, dict(constants), even)
    with ptx_for_cubin():
        return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"ptx_version": 88, **options})


class StrangerCall:
    """Launches of compiled kernels on one device that keeps time."""

    def __init__(self) -> None:
        self.device = emulator.Device(checks=False, threads=1, timing=GPU, sampled=True)
        self.said: list[Any] = []

    def launch(self, made: Any, grid: Sequence[int], args: Sequence[Any]) -> None:
        """Launches a compiled kernel of Triton's on the emulator, timed."""
        module = emulator.load_ptx(str(made.asm["ptx"]))
        ((entry, info),) = module.entries.items()
        given = [*args, *[0] * (len(info.params) - len(args))]  # pointers to scratch memory
        report = self.device.launch(
            module, entry, tuple(grid), 32 * made.metadata.num_warps, given, made.metadata.shared
        )
        assert report.timing is not None
        self.said.append(report.timing.modelled())


def modelled_us(kind: str, head_dim: int, splits: int, block: int, keys: int, warps: int, stages: int) -> float:
    """Microseconds that the model gives Triton's split decode."""
    p = problem_of(kind, head_dim)
    rows, call = p.batch * p.heads, StrangerCall()
    count = p.batch * p.s_k * head_dim
    sizes = {"q_at": 2 * rows * head_dim, "k_at": 2 * count, "v_at": 2 * count, "out": 2 * rows * head_dim}
    sizes |= {"o_at": 4 * splits * rows * head_dim} | dict.fromkeys(("max_at", "sum_at"), 4 * splits * rows)
    at = {name: call.device.alloc(nbytes, name).address for name, nbytes in sizes.items()}
    for k, name in enumerate(("q_at", "k_at", "v_at")):
        call.device.write(at[name], numbers(sizes[name] // 2, k))
    types = dict.fromkeys(("q_at", "k_at", "v_at"), "*bf16") | dict.fromkeys(("o_at", "max_at", "sum_at"), "*fp32")
    constants = {"splits": splits, "heads": p.heads, "dim": head_dim, "block": block, "keys": keys}
    made = compiled(
        split_kv._split_kernel, types | {"s_k": "i32", "scale": "fp32"}, constants, num_warps=warps, num_stages=stages
    )
    call.launch(made, (splits, p.batch, p.heads // block), [*(at[name] for name in types), p.s_k, p.scale])
    types = {"part_at": "*fp32", "max_at": "*fp32", "sum_at": "*fp32", "o_at": "*bf16", "rows": "i32"}
    made = compiled(
        split_kv._combine_kernel, types, {"splits": splits, "dim": head_dim}, num_warps=max(1, min(4, head_dim // 128))
    )
    call.launch(made, (rows, 1, 1), [at["o_at"], at["max_at"], at["sum_at"], at["out"], rows])
    return seconds_of(architecture(GPU), tuple(call.said)) * 1e6


def main() -> int:
    """Says how far the model is off for the Triton rows of a record."""
    parser = argparse.ArgumentParser(prog="python -m fmha.harness.bench.trials.triton_times", description=__doc__)
    parser.add_argument("record", type=Path)
    errors = []
    for row in json.loads(parser.parse_args().record.read_text())["rows"]:
        if "triton_configuration" not in row:
            continue
        found = _CONFIGURATION.search(row["triton_configuration"])
        assert found, row["triton_configuration"]
        measured = float(row["results"]["triton_split"]["rotated"]["median_us"])
        us = modelled_us(row["kind"], row["head_dim"], *map(int, found.groups()))
        errors.append(abs(us / measured - 1))
        told = f"{row['kind']:6} {row['head_dim']:3}  {measured:7.1f} {us:7.1f} us {us / measured - 1:+5.0%}"
        print(f"{told}  {row['triton_configuration']}")
    print(f"{len(errors)} measured: mean error {sum(errors) / len(errors):.1%}, worst {max(errors):.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
