"""The page of who sees what: compute-sanitizer's words, as tools.sanitizer.host has kept them, beside our own.

    python -m tools.sanitizer.who_sees_what                          # writes docs/reference/who-sees-what.md
    python -m tools.sanitizer.who_sees_what --ours FOLDER            # first runs the programs of FOLDER on the emulator

Ours for the catalogue is what docs/reference/catalogue.md says of the strict profile.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.catalogue import PAGE as CATALOGUE_PAGE
from tools.catalogue import ROOT
from tools.sanitizer.host import TOOLS, hanging, programs

RECORD = ROOT / "results/sanitizer-h200.json"
PAGE = ROOT / "docs/reference/who-sees-what.md"
NOT_A_WORD = ("hang", "refused", "lost")

_HEAD = """# Who sees what

For who asks whether the emulator makes NVIDIA's compute-sanitizer superfluous, or the other way round. Both looked at
the same sources: the emulator under the strict profile, compute-sanitizer on an {gpu}
({version}, driver {driver}).
`python -m tools.sanitizer.host` runs its four tools on a machine with a GPU and keeps what they say
(`results/sanitizer-h200.json`). `python -m tools.sanitizer.who_sees_what` makes this page of it, and a test compares.

What a table shows as a dash was run, and nothing was said of it. A launch that hangs is not run on the GPU: no tool has
a word for that, the emulator names the warps that wait.
"""


@dataclass(frozen=True)
class ToolVerdicts:
    """A program or a kernel: what each tool says of it, by the tool's name, and the rules that the emulator finds."""

    name: str
    said: dict[str, list[str]]
    ours: Sequence[str]

    @property
    def told_by(self) -> list[str]:
        """The tools that say something."""
        return [tool for tool in TOOLS if word_of(tool, self.said.get(tool, []))]


def word_of(tool: str, said: Sequence[str]) -> str:
    """What a tool says, in a few words; "" for nothing."""
    words = [line for line in said if not line.startswith(NOT_A_WORD)]
    if not words:
        return ""
    first = words[0]
    if tool == "racecheck":
        return "race" if any("Race reported" in line for line in words) else first[:40]
    first = re.sub(r"^(Error|Warning): ", "", first)
    first = re.sub(r" (of size|at|by|in) .*", "", first)
    return first.replace("Barrier error detected. ", "").rstrip(".")[:48]


def ours_of_catalogue() -> dict[str, list[str]]:
    """The rules of the strict profile, by the name of an entry."""
    found: dict[str, list[str]] = {}
    room = ""
    for line in CATALOGUE_PAGE.read_text().splitlines():
        if line.startswith("## "):
            room = line[3:].lower()
        elif row := re.match(r"\| `(\w+)` \| .* \| (.*) \| .* \|$", line):
            found[f"{room}/{row[1]}"] = [] if row[2].startswith("missed") else re.findall(r"`([\w-]+)`", row[2])
    return found


def ours_of_programs(folder: Path) -> dict[str, list[str]]:
    """What the emulator says of each program, built for it."""
    found = {}
    with tempfile.TemporaryDirectory() as made:
        for name, build in programs(folder, Path(made), "-cudart=shared"):
            command = [sys.executable, "-m", "fmha", "emulate", "--profile", "strict", "--arch", "sm_90a", "--"]
            done = subprocess.run([*command, *map(str, build())], capture_output=True, text=True, check=False)
            found[name] = sorted(set(re.findall(r"^(?:error|warning): ([\w-]+)", done.stderr, re.MULTILINE)))
            print(name, *found[name], flush=True)
    return found


def _cells(judged: ToolVerdicts) -> str:
    words = [word_of(tool, judged.said[tool]) or "—" if tool in judged.said else "not run" for tool in TOOLS]
    return " | ".join([*words, ", ".join(f"`{rule}`" for rule in judged.ours) or "—"])


def _table(rows: Sequence[ToolVerdicts]) -> str:
    head = f"| program | {' | '.join(TOOLS)} | fmha |\n|{'---|' * (len(TOOLS) + 2)}\n"
    return head + "\n".join(f"| {r.name.partition('/')[2].removesuffix(':mistake')} | {_cells(r)} |" for r in rows)


def _rooms(kernels: Sequence[ToolVerdicts]) -> str:
    lines = [f"| room | mistakes | {' | '.join(TOOLS)} | one of them | fmha |", f"|{'---|' * (len(TOOLS) + 4)}"]
    names = sorted({k.name.partition("/")[0] for k in kernels})
    for room in [*names, ""]:
        of = [k for k in kernels if k.name.startswith(f"{room}/" if room else "")]
        counts = [sum(tool in k.told_by for k in of) for tool in TOOLS]
        told = [sum(bool(k.told_by) for k in of), sum(bool(k.ours) for k in of)]
        lines.append(f"| {room or '**all**'} | {len(of)} | {' | '.join(map(str, [*counts, *told]))} |")
    return "\n".join(lines)


def page(record: dict[str, Any]) -> str:
    """The page, docs/reference/who-sees-what.md."""
    said: dict[str, dict[str, list[str]]] = record["said"]
    ours: dict[str, list[str]] = {**record["ours"], **{f"{n}:mistake": r for n, r in ours_of_catalogue().items()}}
    everything = [ToolVerdicts(name, tools, ours.get(name, [])) for name, tools in sorted(said.items())]
    mistakes = [j for j in everything if j.name.endswith(":mistake")]
    rooms = {name.partition("/")[0] for name in ours_of_catalogue()}
    refused = {name for name, tools in said.items() if any("refused: " in words for words in tools.values())}
    kernels = [j for j in mistakes if j.name.partition("/")[0] in rooms and j.name not in refused]
    accused = [j for j in everything if j.name.endswith(":right") and (j.told_by or j.ours)]
    origin = record["provenance"]
    parts = [
        _HEAD.format(gpu=origin["gpu"], version=origin["compute-sanitizer"].partition(" (")[0], driver=origin["driver"])
    ]
    titles = {
        "samples": "NVIDIA's own samples, github.com/NVIDIA/compute-sanitizer-samples at 1e1fab8e",
        "reports": "Reports of strangers, rebuilt ([reports.md](reports.md))",
        "cases": "More rebuilt reports, whose sources are not in this repository",
    }
    for kind, title in titles.items():
        rows = [j for j in mistakes if re.match(rf"{kind}(_\w+)?/", j.name)]
        if rows:
            parts.append(f"## {title}\n\n{_table(rows)}\n")
    left_out = len(hanging() - {n for n in hanging() if n.startswith("tensor/")})
    parts.append(
        f"## The catalogue\n\nMistakes of [catalogue.md](catalogue.md) that an sm_90 can have, how many of them each "
        f"tool sees. {left_out} that hang are left out.\n\n{_rooms(kernels)}\n"
    )
    alone = [j for j in mistakes if j.told_by and not j.ours]
    parts.append(
        "## Seen by compute-sanitizer alone\n\n"
        + ("\n".join(f"- `{j.name.removesuffix(':mistake')}`: {', '.join(j.told_by)}" for j in alone) or "None.")
        + "\n"
    )
    lines = [f"| {j.name.removesuffix(':right')} | {_cells(j)} |" for j in accused]
    head = f"| twin | {' | '.join(TOOLS)} | fmha |\n|{'---|' * (len(TOOLS) + 2)}\n"
    right = sum(j.name.endswith(":right") for j in everything)
    parts.append(
        f"## Right programs that are accused\n\nOf {right} clean twins that were run:\n\n"
        + (head + "\n".join(lines) if lines else "None.")
        + "\n"
    )
    return "\n".join(parts)


def main() -> int:
    """Writes the page from the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", type=Path, help="a folder of programs, as tools.sanitizer.host has it")
    options = parser.parse_args()
    record = json.loads(RECORD.read_text())
    if options.ours:
        record["ours"] = ours_of_programs(options.ours)
        RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    PAGE.write_text(page(record))
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
