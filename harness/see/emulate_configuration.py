"""`fmha emulate` of a configuration: what its launches did wrong. What they computed, `fmha run-matrix` judges."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fmha.emulator.device import Device, Launched, Module
from fmha.emulator.launch_report import Finding
from fmha.harness.see.launch_subject import LaunchSubject

MOST_TOLD = 8  # findings that are printed


@dataclass(slots=True)
class Emulated:
    """The launches of what was named, each with its report."""

    name: str
    launches: list[Launched] = field(default_factory=list)

    @contextmanager
    def __call__(self, device: Device, module: Module, entry: str) -> Iterator[None]:
        yield
        assert device.latest is not None
        self.launches.append(device.latest)

    @property
    def findings(self) -> list[tuple[int, Finding]]:
        """Each with its launch's number."""
        return [(n, f) for n, made in enumerate(self.launches, 1) if made.report for f in made.report.findings]

    @property
    def passed(self) -> bool:
        """Whether no launch has an error that nobody accepted."""
        return all(made.report is None or made.report.ok for made in self.launches)

    @property
    def executed(self) -> float:
        """Warp instructions of all launches."""
        return sum(made.report.stats["warp_instructions"] for made in self.launches if made.report)

    def fields(self) -> dict[str, Any]:
        """As JSON."""
        found = [{"launch": number, "finding": dataclasses.asdict(finding)} for number, finding in self.findings]
        launches = [{"kernel": made.entry, "stats": made.report.stats if made.report else {}} for made in self.launches]
        return {"passed": self.passed, "launches": launches, "findings": found}

    def lines(self) -> Iterator[str]:
        """What is told of the findings, with what to do, and the verdict as the last line."""
        for number, finding in self.findings[:MOST_TOLD]:
            yield f"launch {number}, {self.launches[number - 1].entry}"
            yield str(finding)
            if finding.remedy:
                yield f"  what to do: {finding.remedy}"
        if len(self.findings) > MOST_TOLD:
            yield f"and {len(self.findings) - MOST_TOLD} more findings (--json has all)"
        counts = f"{len(self.launches)} launches, {self.executed:,.0f} warp instructions, {len(self.findings)} findings"
        verdict = "NO HAZARD" if self.passed else "FAIL"
        yield f"{verdict}: {counts}; fmha run-matrix --case {self.name} judges the numbers"


def emulated(subject: LaunchSubject) -> Emulated:
    """UserError for what cannot be launched."""
    found = Emulated(subject.name)
    subject.launches(found)
    return found
