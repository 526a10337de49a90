"""The list of mutants that change nothing: for each, why the unmutated instruction is not needed or not different."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from fmha.emulator.mutation.operators import PtxMutant

ANY_LINE = r"\d+"


@dataclass(frozen=True, slots=True)
class Redundant:
    """Matches mutants by kernel, by what was done, by the instruction's text, its PTX line and the CUDA place; all are
    regexes."""

    kernel: re.Pattern[str]
    what: re.Pattern[str]
    instruction: re.Pattern[str]
    source: re.Pattern[str]
    line: re.Pattern[str]
    reason: str

    def matches(self, kernel: str, mutant: PtxMutant) -> bool:
        """Whether this line of the list is of that mutant."""
        return (
            self.kernel.fullmatch(kernel) is not None
            and self.what.fullmatch(mutant.what) is not None
            and self.instruction.search(mutant.text) is not None
            and self.source.search(mutant.source) is not None
            and self.line.fullmatch(str(mutant.line)) is not None
        )


def load_redundant(path: Path) -> tuple[Redundant, ...]:
    """A YAML list of {kernel, what, instruction, source, line, reason}; `source` and `line` may be left out. ValueError
    otherwise."""
    entries = yaml.safe_load(path.read_text())
    if not isinstance(entries, list):
        raise ValueError(f"{path}: a list is expected")
    out: list[Redundant] = []
    for n, entry in enumerate(entries):
        if not isinstance(entry, dict) or not {"kernel", "what", "instruction", "reason"} <= entry.keys():
            raise ValueError(f"{path}: entry {n + 1} needs kernel, what, instruction and reason")
        entry = {"source": "", "line": ANY_LINE, **entry}
        names = ("kernel", "what", "instruction", "source", "line")
        patterns = {name: re.compile(str(entry[name])) for name in names}
        out.append(Redundant(**patterns, reason=" ".join(str(entry["reason"]).split())))
    return tuple(out)
