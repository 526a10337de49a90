"""What of other projects' kernels the emulator decodes, by opcode form, and what it refuses, by how often it is met.

    python -m tools.strangers SOURCE ... --json FOUND.json     # looks, and writes what it has found
    python -m tools.strangers --page FOUND.json                # writes docs/reference/strangers.md from that

A SOURCE is a wheel, a folder or a file. PTX is found in files named *.ptx, in what nvcc has built (libraries, objects,
fat binaries) and, with --compile="FLAG ...", by compiling *.cu files, each on its own. Entries are decoded as a launch
would do it; nothing is run. PTX that is met twice counts once.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from fmha.emulator import PtxError, load_ptx
from fmha.emulator.decode import decode_entry
from fmha.emulator.fatbin import FATBIN_MAGIC, FatbinError, embedded_ptx, is_binary

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference/strangers.md"
_ENTRY = re.compile(r"^\s*(?:\.visible|\.weak|\.extern)?\s*\.entry\s+([\w$]+)", re.MULTILINE)
_GLOBALS = 1 << 40  # where a module's variables are taken to lie


@dataclass
class SourceSeen:
    """Of one source: what was looked at, how often each opcode form was decoded, and what was refused."""

    name: str
    modules: int = 0
    entries: int = 0
    decoded: int = 0
    forms: Counter[str] = field(default_factory=Counter)  # instructions of entries that decode
    refused: Counter[str] = field(default_factory=Counter)  # entries, by the reason
    examples: dict[str, str] = field(default_factory=dict)  # of each reason the first entry and line

    def add(self, other: SourceSeen) -> None:
        """Adds another source's counts."""
        self.modules += other.modules
        self.entries += other.entries
        self.decoded += other.decoded
        self.forms += other.forms
        self.refused += other.refused
        self.examples = other.examples | self.examples


def reason_of(error: PtxError) -> str:
    """A refusal without what is particular to its place: names, numbers, registers."""
    opcode = re.match(r"(?:@!?%?\w+\s+)?([a-z][\w.:]*)", error.text)
    message = re.sub(r"'[^']*'|%[\w.$]+|\b0x[0-9a-f]+\b|\b\d+\b", "_", error.message)
    return f"`{opcode[1]}`: {message}" if opcode else message


def look_at(name: str, text: str) -> SourceSeen:
    """Every entry of one PTX module."""
    seen = SourceSeen(name, modules=1)
    try:
        parsed = load_ptx(text).parsed
    except PtxError as error:
        seen.entries = max(1, len(_ENTRY.findall(text)))
        seen.refused[reason_of(error)] += seen.entries
        seen.examples[reason_of(error)] = f"{name}: {error}"
        return seen
    variables = [v for v in parsed.variables.values() if v.space in ("global", "const")]
    symbols = {v.name: _GLOBALS + 4096 * n for n, v in enumerate(variables)}
    for entry, function in parsed.entries.items():
        if not function.defined:
            continue
        seen.entries += 1
        try:
            decoded = decode_entry(parsed, entry, symbols)
        except PtxError as error:
            seen.refused[reason_of(error)] += 1
            seen.examples.setdefault(reason_of(error), f"{name}: {entry}: {error}")
            continue
        seen.decoded += 1
        seen.forms.update(i.mnemonic for i in decoded.sources)
    return seen


def modules_of(source: Path, compile_with: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    """Names and texts of the PTX modules of a wheel, a folder or a file."""
    if source.is_dir():
        for path in sorted(p for p in source.rglob("*") if p.is_file()):
            yield from _modules_of_file(path, str(path.relative_to(source)), compile_with)
    elif source.suffix == ".whl":
        with zipfile.ZipFile(source) as wheel:
            for name in wheel.namelist():
                yield from _modules_of_bytes(wheel.read(name), name)
    else:
        yield from _modules_of_file(source, source.name, compile_with)


def _modules_of_file(path: Path, name: str, compile_with: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    if path.suffix == ".cu" and compile_with is not None:
        if ptx := _compiled(path, compile_with):
            yield name, ptx
        return
    yield from _modules_of_bytes(path.read_bytes(), name)


def _modules_of_bytes(data: bytes, name: str) -> Iterator[tuple[str, str]]:
    if name.endswith(".ptx"):
        yield name, data.decode(errors="replace")
    elif is_binary(data) and FATBIN_MAGIC in data:
        try:
            for n, ptx in enumerate(embedded_ptx(data)):
                yield f"{name}#{n}", ptx.text
        except FatbinError as error:
            print(f"{name}: {error}", file=sys.stderr)


def _compiled(path: Path, flags: Sequence[str]) -> str:
    """PTX of one source; empty, and a line that says so, where nvcc does not take it alone."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made.ptx"
        command = ["nvcc", "-ptx", "-std=c++17", *flags, "-o", str(made), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode:
            print(f"{path}: nvcc does not compile it: {(done.stderr.splitlines() or [''])[0]}", file=sys.stderr)
            return ""
        return made.read_text()


def distinct(modules: Iterator[tuple[str, str]], most: int, met: set[bytes]) -> Iterator[tuple[str, str]]:
    """Modules that were not met before, until there are `most` entries."""
    entries = 0
    for name, text in modules:
        digest = sha256(text.encode()).digest()
        count = len(_ENTRY.findall(text))
        if digest in met or not count:
            continue
        met.add(digest)
        yield name, text
        entries += count
        if entries >= most:
            return


def look(sources: Sequence[Path], compile_with: Sequence[str] | None, most: int, jobs: int) -> list[SourceSeen]:
    """Decodes every module of the sources, in parallel."""
    met: set[bytes] = set()
    found: list[SourceSeen] = []
    with ProcessPoolExecutor(jobs) as pool:
        for source in sources:
            total = SourceSeen(source.name)
            modules = list(distinct(modules_of(source, compile_with), most, met))
            for seen in pool.map(look_at, *zip(*modules, strict=True)) if modules else ():
                total.add(seen)
            print(f"{total.name}: {total.decoded} of {total.entries} entries", flush=True)
            found.append(total)
    return found


def page(found: Sequence[SourceSeen]) -> str:
    """The page, docs/reference/strangers.md."""
    everything = SourceSeen("all of them")
    for seen in found:
        everything.add(seen)
    share = 100 * everything.decoded / max(1, everything.entries)
    lines = [
        "# Kernels of other projects: what decodes",
        "",
        "Generated by `python -m tools.strangers`, from public wheels and programs. Entries of their PTX were decoded",
        "as a launch would do it; nothing was run. Of a large one the first modules were looked at (`--most 700`).",
        "",
        f"Of {everything.entries:,} entries {everything.decoded:,} decode: {share:.2f}%.",
        "",
        "| source | modules | entries | decode |",
        "|---|---|---|---|",
        *(f"| {s.name} | {s.modules} | {s.entries} | {s.decoded} |" for s in found),
        "",
        "## What is refused",
        "",
        "| entries | reason |",
        "|---|---|",
        *(f"| {count} | {reason} |" for reason, count in everything.refused.most_common()),
        "",
        "## What decodes",
        "",
        f"{len(everything.forms):,} opcode forms, by how many instructions of these kernels have them.",
        "",
    ]
    families: dict[str, list[str]] = {}
    for form, count in everything.forms.most_common():
        families.setdefault(form.split(".")[0], []).append(f"{form} {count:,}")
    lines += ["| opcode | forms |", "|---|---|"]
    lines += [f"| `{opcode}` | {', '.join(forms)} |" for opcode, forms in sorted(families.items())]
    return "\n".join(lines) + "\n"


def read_record(path: Path) -> list[SourceSeen]:
    """What an earlier run has written."""
    return [
        SourceSeen(**row | {"forms": Counter(row["forms"]), "refused": Counter(row["refused"])})
        for row in json.loads(path.read_text())
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Decodes kernels of other projects, or writes the page, as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tools.strangers", description=__doc__.splitlines()[0])
    parser.add_argument("sources", nargs="*", type=Path, metavar="SOURCE", help="a wheel, a folder or a file")
    parser.add_argument("--json", type=Path, help="where to write what was found")
    parser.add_argument("--page", type=Path, metavar="FOUND", help="write docs/reference/strangers.md from that")
    parser.add_argument(
        "--compile", nargs="?", const="", metavar="FLAGS", help="compile *.cu files, by nvcc with these flags"
    )
    parser.add_argument("--most", type=int, default=1 << 30, help="entries to look at of one source")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    if missing := [str(s) for s in options.sources if not s.exists()]:
        parser.error(f"there is no {missing[0]}")
    if options.sources:
        flags = None if options.compile is None else shlex.split(options.compile)
        found = look(options.sources, flags, options.most, options.jobs)
        for seen in found:
            for reason, example in seen.examples.items():
                print(f"  {seen.refused[reason]:5} {reason}\n        {example[:300]}")
        if options.json:
            options.json.write_text(json.dumps([vars(seen) for seen in found], indent=1, sort_keys=True) + "\n")
    if options.page:
        PAGE.write_text(page(read_record(options.page)))
        print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
