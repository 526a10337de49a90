"""python core_digest.py CORE HEADER: the sha256 of the core's sources, for the core to be compiled with.

A core says by it what it was compiled from, whatever has been edited since, and in a wheel, which has no sources. The
compiled module has the digest behind MARK; whoever asks need not load it.
"""

from __future__ import annotations

import hashlib
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

MARK = "fmha-core-sources:"
_HEX = 64
_SUFFIXES = frozenset({".cpp", ".hpp"})


def of_sources(core: Path) -> str:
    """Over the names and contents of the core's sources, those below the folder `core`."""
    digest = hashlib.sha256()
    for path in sorted(path for path in core.rglob("*") if path.suffix in _SUFFIXES and path.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(core).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def of_module(module: Path) -> str:
    """What a compiled core was compiled from; empty where it does not say."""
    _, found, rest = module.read_bytes().partition(MARK.encode())
    return rest[:_HEX].decode("ascii", "replace") if found else ""


def installed() -> Path:
    """The core of this installation. A wheel has several, for several CPUs, which are of the same sources. Raises
    FileNotFoundError where none was compiled."""
    from fmha import __path__ as folders

    for folder in folders:
        for suffix in EXTENSION_SUFFIXES:
            if (path := Path(folder) / f"emulator/_core{suffix}").is_file():
                return path
    raise FileNotFoundError("the emulator's core is not compiled")


def of_installed() -> str:
    """What the core of this installation was compiled from; empty where there is none."""
    try:
        return of_module(installed())
    except FileNotFoundError:
        return ""


def main(core: str, header: str) -> None:
    """Leaves a header that is current as it was: nothing is compiled again."""
    path, text = Path(header), f'#define FMHA_CORE_SOURCES "{MARK}{of_sources(Path(core))}"\n'
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
