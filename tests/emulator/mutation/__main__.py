"""Runs the mutation tool over every sm_100a forward kernel: `python -m tests.emulator.mutation [OPTIONS OF THE TOOL]`.

Each kernel's own record goes to build/mutation, what they add up to, and survivors, to results/mutation-sm100.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fmha.emulator.mutation.__main__ import main as mutate
from fmha.harness.kernel_side.variants import VARIANTS
from fmha.harness.worker.compilers.build_kernels import build_variants

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
COUNTS = ("mutants", "killed", "redundant", "survived", "unreached", "invalid")


def main(options: Sequence[str]) -> int:
    folder = ROOT / "build" / "mutation"
    variants = [variant for variant in VARIANTS if variant.arch == "sm_100a"]
    code = 0
    kernels: dict[str, Any] = {}
    for build in build_variants(ROOT, variants, folder, 300.0, 2, print):
        if build.error is not None:
            print(f"error: {build.variant.name}: {build.error}", file=sys.stderr)
            return 2
        record = folder / f"{build.variant.name}.json"
        arguments = [build.ptx, "--entry", build.variant.entry, "--launch", str(HERE / "sm100.py")]
        arguments += ["--redundant", str(HERE / "redundant.yaml"), "--json", str(record), *options]
        code = max(code, mutate(arguments))
        kernels[build.variant.name] = shortened(json.loads(record.read_text()))
        print(f"{build.variant.name}: score {kernels[build.variant.name]['score']:.4f}")
    total = totals(kernels)
    command = " ".join(["python -m tests.emulator.mutation", *options])
    text = json.dumps(
        {"command": command, "source_hash": build.source_hash, "total": total, "kernels": kernels}, indent=1
    )
    (ROOT / "results" / "mutation-sm100.json").write_text(text + "\n")
    print(json.dumps(total))
    return code


def totals(kernels: Mapping[str, Any]) -> dict[str, Any]:
    total: dict[str, Any] = {name: sum(kernel[name] for kernel in kernels.values()) for name in COUNTS}
    judged = total["mutants"] - total["invalid"] - total["unreached"]
    total["score"] = (total["killed"] + total["redundant"]) / judged if judged else None
    return total


def shortened(record: dict[str, Any]) -> dict[str, Any]:
    survivors = [outcome for outcome in record["outcomes"] if outcome["status"] == "survived"]
    return {name: record[name] for name in (*COUNTS, "score", "plan", "killed_by")} | {"survivors": survivors}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
