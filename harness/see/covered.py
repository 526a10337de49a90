"""`fmha coverage`: which lines of a kernel its launches have not executed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from fmha.emulator.device import Device, Module
from fmha.harness.contract.lines import Lines
from fmha.harness.cpp_names import short
from fmha.harness.errors import UserError
from fmha.harness.see.launch_subject import LaunchSubject


@dataclass(slots=True)
class CoveredLaunches:
    """Of launches: PTX by entry, sources by file; of a file that holds several kernels those that were launched."""

    ptx: dict[str, Lines] = field(default_factory=dict)
    source: dict[str, Lines] = field(default_factory=dict)

    @contextmanager
    def __call__(self, device: Device, module: Module, entry: str) -> Iterator[None]:
        device.watch()
        yield
        lines, name = device.coverage(module)[entry], short(entry)
        self.ptx[name] = self.ptx.get(name, Lines()) | Lines.of(lines.ptx)
        by_file: dict[str, dict[int, bool]] = {}
        for (file, line), done in lines.source.items():
            by_file.setdefault(file, {})[line] = done
        for file, numbers in by_file.items():
            self.source[file] = self.source.get(file, Lines()) | Lines.of(numbers)


def covered(subject: LaunchSubject) -> CoveredLaunches:
    """UserError where nothing is launched."""
    found = CoveredLaunches()
    subject.launches(found)
    if not found.ptx:
        raise UserError("nothing is launched", where=subject.name)
    return found


def lines_of(found: CoveredLaunches) -> Iterator[str]:
    """Files outside of the checkout, as the toolkit's headers are, are left out."""
    yield from (f"{name}: {told(lines)}" for name, lines in _own(found.source).items())
    yield from (f"{name}, PTX: {told(lines)}" for name, lines in found.ptx.items())


def fields_of(found: CoveredLaunches) -> dict[str, object]:
    """As JSON."""

    def plain(by_name: Mapping[str, Lines]) -> dict[str, dict[str, object]]:
        return {
            name: {"lines": len(item.all), "executed": len(item.executed), "missing": item.missing}
            for name, item in by_name.items()
        }

    return {"source": plain(_own(found.source)), "ptx": plain(found.ptx)}


def _own(source: Mapping[str, Lines]) -> dict[str, Lines]:
    own = {name: lines for name, lines in source.items() if not name.startswith("/")}
    return dict(sorted((own or source).items()))


def told(lines: Lines) -> str:
    """How many of its lines were executed, and which were not."""
    counts = f"{len(lines.executed)} of {len(lines.all)} lines executed"
    return f"{counts}; not {lines.missing}" if lines.missing else counts
