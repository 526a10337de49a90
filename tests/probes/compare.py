"""Holds one run against another: python -m tests.probes.compare GPU.npz EMULATOR.npz [GPU_DENSE.npz] [--json OUT]"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tests.probes.case import Arg, Array, Case, In
from tests.probes.catalogue import cases
from tests.probes.known import KNOWN, pattern_of
from tests.probes.scalar import ROW_OF
from tests.probes.store import Result, load

Verdict = Literal["agree", "differ", "not-modelled"]
_TYPES = {"f16": np.uint16, "bf16": np.uint16, "f32": np.uint32, "f64": np.uint64}


@dataclass(frozen=True, slots=True)
class Comparison:
    name: str
    verdict: Verdict
    elements: int = 0
    identical: int = 0  # bit for bit
    max_ulp: float = 0.0  # of an f32 result: emulator against GPU
    note: str = ""


def _typed(case: Case, data: Array) -> Array:
    """The output as elements: NaN formats and instructions say how wide they are, bytes otherwise."""
    if case.nan:
        return data.view(_TYPES[case.nan.removesuffix("x2")])
    if case.source == "scalar":
        return data.view({"h": np.uint16, "r": np.uint32, "l": np.uint64}[ROW_OF[case.entry].result])
    return data if case.source == "tma" or "stmatrix" in case.name else data.view(np.uint32)


def _ordered(bits: Array) -> Array:
    """f32 bits as integers in the order of their values: neighbours differ by one."""
    i = bits.view(np.int32).astype(np.int64)
    return np.where(i < 0, -(i & 0x7FFFFFFF), i)


def _first(gpu: Array, ours: Array, bad: Array) -> str:
    i = int(bad[0])
    return f"{bad.size} differ; element {i}: GPU {int(gpu[i]):#x}, emulator {int(ours[i]):#x}"


def _operands_of(case: Case, arguments: tuple[Arg, ...], element: int, elements: int) -> list[str]:
    """Operands of the thread that gave an element: halves and words of one result share a thread."""
    inputs = [x.data for x in arguments if isinstance(x, In)]
    return [hex(int(x[element * x.size // elements])) for x in inputs]


def compare(case: Case, gpu: Result, ours: Result, dense: bool = False) -> Comparison:
    name = case.name + ("/dense" if dense else "")
    if not ours.modelled:
        return Comparison(name, "not-modelled", note=ours.error.split("\n")[0][:160])
    if gpu.error or ours.error:
        verdict: Verdict = "agree" if gpu.error and ours.error else "differ"
        return Comparison(
            name, verdict, note=f"GPU: {gpu.error or 'ran'}; emulator: {(ours.error or 'ran').splitlines()[0]}"
        )
    a = np.concatenate([_typed(case, x) for x in gpu.outputs])
    b = np.concatenate([_typed(case, x) for x in ours.outputs])
    wrong = np.flatnonzero(a != b)
    same = int((a == b).sum())
    arguments = case.dense if dense else case.args
    ulp = float(np.abs(_ordered(a) - _ordered(b)).max()) if case.kind == "accumulate" else 0.0
    note = _first(a, b, wrong) if wrong.size else ""
    if wrong.size and case.source == "scalar":
        note += f" of {', '.join(_operands_of(case, arguments, int(wrong[0]), a.size))}"
    return Comparison(name, "differ" if wrong.size else "agree", a.size, same, ulp, note=note)


def compare_all(gpu: dict[str, Result], ours: dict[str, Result], dense: dict[str, Result]) -> list[Comparison]:
    found = []
    for case in cases():
        if case.name in gpu and case.name in ours:
            found.append(compare(case, gpu[case.name], ours[case.name]))
        key = f"{case.name}/dense"
        if key in dense and key in ours:
            found.append(compare(case, dense[key], ours[key], dense=True))
    return found


def summary(found: list[Comparison]) -> dict[str, dict[str, int]]:
    table: dict[str, dict[str, int]] = {}
    for c in found:
        group = "/".join(c.name.split("/")[:1])
        row = table.setdefault(
            group, {"probes": 0, "agree": 0, "differ": 0, "not-modelled": 0, "elements": 0, "identical": 0}
        )
        row["probes"] += 1
        row[c.verdict] += 1
        row["elements"] += c.elements
        row["identical"] += c.identical
    return table


def _record(found: list[Comparison], provenance: dict[str, Any]) -> str:
    head = json.dumps({"provenance": provenance, "summary": summary(found)}, indent=1)
    rows = []
    for c in found:
        values = {k: round(v, 4) if isinstance(v, float) else v for k, v in asdict(c).items()}
        pattern = pattern_of(c.name)
        if pattern and c.verdict == "differ":
            values["reason"] = KNOWN[pattern]
        rows.append("  " + json.dumps({k: v for k, v in values.items() if v or k in ("name", "verdict")}))
    return head.removesuffix("\n}") + ',\n "probes": [\n' + ",\n".join(rows) + "\n ]\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gpu", type=Path)
    parser.add_argument("emulator", type=Path)
    parser.add_argument("dense", type=Path, nargs="?")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--provenance", default="{}", help="JSON object to record beside the GPU's name and driver")
    asked = parser.parse_args()
    gpu, provenance = load(asked.gpu)
    ours, _ = load(asked.emulator)
    dense = load(asked.dense)[0] if asked.dense else {}
    found = compare_all(gpu, ours, dense)
    for c in found:
        if c.verdict != "agree":
            print(f"{c.verdict:13}{c.name:44}{c.identical}/{c.elements} {c.note}")
    for group, row in summary(found).items():
        print(group, row)
    if asked.json:
        asked.json.write_text(_record(found, provenance | json.loads(asked.provenance)))


if __name__ == "__main__":
    main()
