"""Mutants of the kernels that Triton and the CuTe DSL compiled: `python -m tests.emulator.mutation.released [OPTIONS]`.

The options are the tool's, but for --only NAME..., which come last. Each kernel's record goes to build/mutation; what
they add up to, and the survivors, to results/mutation-thirdparty.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from fmha.emulator.mutation.__main__ import main as mutate
from tests.emulator.mutation.__main__ import HERE, ROOT, shortened, totals
from tests.emulator.thirdparty.running import HERE as KERNELS
from tests.emulator.thirdparty.running import NAMES


def main(arguments: Sequence[str]) -> int:
    at = arguments.index("--only") if "--only" in arguments else len(arguments)
    options, only = arguments[:at], arguments[at + 1 :]
    folder = ROOT / "build" / "mutation"
    folder.mkdir(parents=True, exist_ok=True)
    kernels: dict[str, Any] = {}
    for name in only or NAMES:
        record = folder / f"thirdparty-{name}.json"
        given = [str(KERNELS / f"{name}.ptx"), "--name", name, "--launch", f"{HERE / 'thirdparty.py'}:{name}"]
        given += ["--redundant", str(HERE / "redundant-thirdparty.yaml"), "--json", str(record)]
        if mutate([*given, *options]) == 2:
            return 2
        kernels[name] = shortened(json.loads(record.read_text()))
    total = totals(kernels)
    command = " ".join(["python -m tests.emulator.mutation.released", *arguments])
    text = json.dumps({"command": command, "total": total, "kernels": kernels}, indent=1)
    (ROOT / "results" / "mutation-thirdparty.json").write_text(text + "\n")
    print(json.dumps(total))
    return 0 if total["survived"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
