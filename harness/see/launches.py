"""`fmha launches`: what is launched where something is named, and a launch written for `fmha emulate`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from fmha.emulator.device import Buffer, Device, Launched, Module
from fmha.harness.cpp_names import readable
from fmha.harness.errors import UserError
from fmha.harness.see.launch_subject import LaunchSubject, place_of

PTX, LAUNCH = "kernel.ptx", "launch.yaml"
_POISON = 0xFF  # what memory holds that nobody has written


class _Bytes(str):
    """In quotes, for some rows of digits are numbers to one version of YAML and words to another."""


class _Dumper(yaml.SafeDumper):
    pass


_Dumper.add_representer(_Bytes, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'"))


@dataclass(frozen=True, slots=True)
class ListedLaunch:
    """A launch: what it was asked for, and its parameters, each a buffer's name and an offset, or its bytes."""

    number: int
    asked: Launched
    arguments: tuple[str, ...]
    target: str

    def fields(self) -> dict[str, Any]:
        """As JSON."""
        a = self.asked
        return {
            "number": self.number,
            "entry": a.entry,
            "name": readable(a.entry),
            "grid": list(a.grid),
            "block": list(a.block),
            "cluster": list(a.cluster),
            "shared_bytes": a.shared_bytes,
            "arguments": list(self.arguments),
            "target": self.target,
        }


@dataclass(slots=True)
class _Lister:
    """Of every launch what it is asked for; no more, since a program may have many."""

    found: list[ListedLaunch] = field(default_factory=list)

    @contextmanager
    def __call__(self, device: Device, module: Module, entry: str) -> Iterator[None]:
        yield
        assert device.latest is not None
        arguments = tuple(_argument(device, module, device.latest))
        self.found.append(ListedLaunch(len(self.found) + 1, device.latest, arguments, module.target))


def listed(subject: LaunchSubject) -> list[ListedLaunch]:
    """All launches, or the one that is meant. UserError where there is none."""
    lister = _Lister()
    subject.run(lister)
    if subject.which is None:
        return lister.found
    return [lister.found[place_of(subject.which, [item.asked.entry for item in lister.found])]]


def _argument(device: Device, module: Module, asked: Launched) -> Iterator[str]:
    for param in module.entries[asked.entry].params:
        raw = asked.params[param.offset : param.offset + param.nbytes]
        buffer = device.buffer_at(int.from_bytes(raw, "little")) if param.nbytes == 8 else None
        if buffer is None:
            short = raw.hex() if len(raw) <= 16 else f"{len(raw)} bytes"
            yield f"{int.from_bytes(raw, 'little')}" if len(raw) <= 8 else short
        else:
            offset = int.from_bytes(raw, "little") - buffer.address
            yield f"{buffer.name}{f' + {offset}' if offset else ''}"


@dataclass(slots=True)
class _Writer:
    """Keeps the memory that one launch finds."""

    memory: list[tuple[Buffer, NDArray[np.uint8]]] = field(default_factory=list)
    module: Module | None = None
    asked: Launched | None = None

    @contextmanager
    def __call__(self, device: Device, module: Module, entry: str) -> Iterator[None]:
        self.memory = [(buffer, device.read(buffer.address, buffer.nbytes)) for buffer in device.buffers]
        self.module = module
        yield
        self.asked = device.latest


def write(subject: LaunchSubject, folder: Path) -> list[Path]:
    """The launch that is meant, or the first, as the files of `fmha emulate`: PTX, launch.yaml, and the memory that it
    finds, at the addresses that it finds it. UserError where that says not all of it, or cannot be written."""
    writer = _Writer()
    subject.look(writer)
    assert writer.module is not None
    assert writer.asked is not None
    module, asked = writer.module, writer.asked
    if module.parsed.variables and any(v.space == "global" for v in module.parsed.variables.values()):
        names = ", ".join(name for name, v in module.parsed.variables.items() if v.space == "global")
        what = f"its module has variables in device memory ({names}), and launch.yaml has no place for what they hold"
        raise UserError(what, where=asked.entry)
    buffers: dict[str, dict[str, Any]] = {}
    files: dict[str, NDArray[np.uint8]] = {}
    for buffer, data in writer.memory:
        name = _free(buffer.name, buffers)
        buffers[name] = {"dtype": "u8", "shape": [buffer.nbytes], "address": buffer.address}
        if not (data == _POISON).all():
            buffers[name]["file"] = f"{name}.npy"
            files[f"{name}.npy"] = data
    params = module.entries[asked.entry].params
    document: dict[str, Any] = {
        "entry": asked.entry,
        "grid": list(asked.grid),
        "block": list(asked.block),
        "cluster": list(asked.cluster),
        "shared_bytes": asked.shared_bytes,
        "cooperative": asked.cooperative,
        "buffers": buffers,
        "args": [{"hex": _Bytes(asked.params[p.offset : p.offset + p.nbytes].hex())} for p in params],
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / PTX).write_text(module.parsed.source, encoding="utf-8")
        for file, data in files.items():
            np.save(folder / file, data)
        (folder / LAUNCH).write_text(yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=120), encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", where=str(folder)) from error
    return [folder / name for name in (PTX, LAUNCH, *files)]


def _free(name: str, taken: dict[str, Any]) -> str:
    """A name for a file, and of no other buffer."""
    plain = "".join(c if c.isalnum() or c in "_-" else "_" for c in name) or "buffer"
    number, found = 2, plain
    while found in taken:
        found, number = f"{plain}_{number}", number + 1
    return found
