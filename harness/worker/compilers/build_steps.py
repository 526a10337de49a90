"""The steps of one build: the source to PTX, that PTX to a cubin, and what was read for it."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fmha.harness.contract.codec import encode
from fmha.harness.contract.protocol import Variant
from fmha.harness.cpp_names import UnknownNameError, symbol_of
from fmha.harness.kernel_side.abi import HEADERS, header
from fmha.harness.worker.compilers.at_hand import AtHandOf, still_there
from fmha.harness.worker.compilers.build_inputs import CompilerInputs, asks_by_macro
from fmha.harness.worker.compilers.enclosed import BuildError, EnclosedCompilers, granted, taken
from fmha.harness.worker.compilers.flags import repeatable
from fmha.harness.worker.compilers.hashes import Hashes
from fmha.harness.worker.compilers.ptxas import parse_resources
from fmha.harness.worker.compilers.read import changed_since, of_adapter, of_nvcc, of_process, searched_by, told
from fmha.harness.worker.compilers.sources import hash_sources
from fmha.harness.worker.compilers.toolchain import Toolchain

LOG = "compiler.log"  # beside the artefacts: what the compilers said of them
_ENTRY = re.compile(
    # Of a line alone: where blank lines count, as many as an author likes are looked through from each of them.
    r"^[^\S\n]*(?:\.(?:visible|weak)\s+)?\.entry\s+([\w$%]+)",
    re.MULTILINE | re.ASCII,
)
_OF_A_SHELL = frozenset('$`"\\\n')
_READS = "fmha.harness.worker.compilers.reads"
_HOW_READ = 3  # how the process of another compiler says what it has read; an entry of another way is not taken
_COMPILE = "fmha.harness.worker.subjects.compile"


# What nvcc is given for a variant's PTX, and to assemble it.
Flags = Callable[[Variant], tuple[tuple[str, ...], tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class CompileTask:
    """What every variant of one call has in common."""

    root: Path
    cache: Path
    toolchain: Toolchain
    hashes: Hashes
    source_hashes: Mapping[tuple[str, ...], str]  # by the sources of a variant
    flags_of: Flags
    limit_seconds: float
    cancel: threading.Event
    at_hand: AtHandOf
    searched: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)  # by flags, where includes are
    notes: list[str] = field(default_factory=list)  # for the user, beside the results


def compiled(task: CompileTask, variant: Variant, folder: Path) -> tuple[dict[str, Any], CompilerInputs | None, float]:
    """Fills `folder`/kept with the artefacts. What the manifest says about them, what was read for them, which is None
    where not all of it is known, and how many processor seconds the compilers took for them. BuildError where they
    cannot be made."""
    kept, scratch, entry = (folder / name for name in ("kept", "scratch", "entry"))
    for path in (kept, scratch, entry):
        path.mkdir()
    started = time.time_ns()
    how = _enclosed(task, variant, scratch)
    text, said, inputs = _ptx(task, variant, how)
    (entry / f"{variant.name}.ptx").write_text(text, encoding="utf-8")
    (kept / f"{variant.name}.ptx").write_text(text, encoding="utf-8")
    log, cubin = _assembled(task, variant, how, entry)
    processor = round(sum(how.spent), 3)  # what follows finds out what was read, and is no part of it
    (kept / f"{variant.name}.cubin").write_bytes(cubin)
    (kept / LOG).write_text(said + log, encoding="utf-8")
    names = [variant.entry, *beside(variant)]
    symbols = _symbols(text, names, variant)
    resources = {name: parse_resources(log, symbols[name]) for name in names}
    if missing := [name for name, used in resources.items() if used is None]:
        raise BuildError(f"ptxas reports no entry {missing[0]} in {variant.source}\n{log}")
    if hash_sources(task.root, variant.sources) != task.source_hashes[variant.sources]:
        raise BuildError("the kernel's sources changed while they were compiled; build again")
    if inputs is None:
        inputs = _listed(task, variant, how)
    if inputs is not None and changed_since(task.root, inputs, started):
        inputs = None
    facts = {"variant": variant.name, "nvcc": task.toolchain.nvcc.version, "resources": encode(resources)}
    facts["symbols"] = {name: symbol for name, symbol in symbols.items() if name != symbol}
    return facts, inputs, processor


def _symbols(text: str, names: Sequence[str], variant: Variant) -> dict[str, str]:
    """What entries are called in the PTX. BuildError for a name of none or of several, with those that there are."""
    known = _ENTRY.findall(text)
    try:
        return {name: symbol_of(name, known) for name in names}
    except UnknownNameError as error:
        raise BuildError(f"entry of {variant.source}: {error}") from error


def beside(variant: Variant) -> list[str]:
    """The entries that are launched beside the variant's own."""
    return [*([variant.combine] if variant.combine else []), *variant.others]


def _enclosed(task: CompileTask, variant: Variant, scratch: Path) -> EnclosedCompilers:
    compile_flags, assemble_flags = task.flags_of(variant)
    read = (*task.toolchain.roots, *granted(task.root, (*compile_flags, *assemble_flags)))
    read += tuple(map(header, HEADERS)) if variant.compiler else ()  # modules of fmha's read it where they are imported
    deadline = time.monotonic() + task.limit_seconds
    return EnclosedCompilers(task.root, read, scratch, task.limit_seconds, deadline, task.cancel)


def _ptx(task: CompileTask, variant: Variant, how: EnclosedCompilers) -> tuple[str, str, CompilerInputs | None]:
    """The PTX, what its compiler said, and what it read where that is told at once."""
    target = how.scratch / f"{variant.name}.ptx"
    said, inputs = "", None
    if (found := _planned(task, variant, how)) is not None:
        return found
    if variant.compiler:
        where, name = variant.compiler.split(" ")
        command = [sys.executable, "-P", "-m", _READS, str(how.scratch / "read.json")]
        command += [_COMPILE, where, name, variant.example, variant.arch, str(target)]
        said = how.run(command).output
        listing = taken(how.scratch / "read.json", "the compiler's process did not say what it has read")
        inputs = of_adapter(task.root, listing, how.scratch, task.hashes)
    elif variant.source.endswith(".ptx"):  # another compiler has made it
        target = _inside(task.root, variant.source)
        inputs = CompilerInputs({variant.source: task.hashes.of(str(task.root / variant.source))})
    else:
        _refuse_other_than_a_file(variant.source)
        flags = task.flags_of(variant)[0]
        wanted = ("-MD", "-MF", str(how.scratch / "read.d")) if repeatable(flags) else ()
        command = [str(task.toolchain.nvcc.path), *flags, *wanted, "-ptx", "-o", str(target), variant.source]
        said = how.run(command).output
    try:
        text = taken(target, "nvcc wrote no PTX").decode("utf-8")
    except UnicodeDecodeError as error:
        raise BuildError(f"what should be PTX is no text: {error.reason}") from error
    return _relative_paths(text, task.root), said, inputs


def _planned(task: CompileTask, variant: Variant, how: EnclosedCompilers) -> tuple[str, str, CompilerInputs] | None:
    """What the process that planned has compiled, if all that it depends on is still there as it was."""
    hand = task.at_hand(variant) if variant.compiler else None
    if hand is None:
        return None
    try:
        inputs = of_process(task.root, told(hand.read), hand.scratch, task.hashes)
    except BuildError:
        return None
    if not still_there(task.root, variant.sources, hand):  # looked at after it was hashed: these are hashes of that
        return None
    how.spent.append(hand.processor_seconds)
    return _relative_paths(hand.text, task.root), "", inputs


def _assembled(task: CompileTask, variant: Variant, how: EnclosedCompilers, folder: Path) -> tuple[str, bytes]:
    """What ptxas said, and the cubin."""
    assembler = replace(how, scratch=folder)
    ptx, cubin = folder / f"{variant.name}.ptx", folder / f"{variant.name}.cubin"
    command = [str(task.toolchain.nvcc.path), *task.flags_of(variant)[1], f"-arch={variant.arch}", "-cubin"]
    log = assembler.run([*command, "-o", str(cubin), str(ptx)]).output
    return log, taken(cubin, f"nvcc wrote no cubin\n{log}")


def _listed(task: CompileTask, variant: Variant, how: EnclosedCompilers) -> CompilerInputs | None:
    """What nvcc has read, by its own list."""
    flags, assemble_flags = task.flags_of(variant)
    if not repeatable(flags) or not repeatable(assemble_flags):
        return None
    listing = taken(how.scratch / "read.d", "nvcc does not list what it has read")
    plain = tuple(flag for flag in flags if not flag.startswith("-D"))
    if plain not in task.searched:
        run = lambda command: how.run(command).output  # noqa: E731
        task.searched[plain] = searched_by(run, task.toolchain.nvcc.path, plain, how.scratch)
    found = of_nvcc(task.root, variant.source, listing, task.searched[plain], task.hashes)
    system = ("/usr", *(str(folder) for folder in task.toolchain.roots))
    return None if found is None or asks_by_macro(task.root, found, system) else found


def _refuse_other_than_a_file(source: str) -> None:
    """BuildError for a name that nvcc takes for an option, gcc for a file of options, or their shell for more than a
    name: it would be read under flags of which nobody knows."""
    if source.startswith(("-", "@")) or _OF_A_SHELL & set(source):
        raise BuildError(f"error: compilers do not take {source!r:.80} for the name of a file; give it another")


def _inside(root: Path, source: str) -> Path:
    """A file of the tree, and no link that leads out of it."""
    path = (root / source).resolve()
    if not path.is_relative_to(root):
        raise BuildError(f"error: {source} leads out of the repository")
    return path


def _relative_paths(text: str, root: Path) -> str:
    """nvcc makes the paths in `.file` absolute; here they stay relative to the root, the same in every checkout."""
    directive = re.compile(rf'^([^\S\n]*\.file\s+\d+\s+"){re.escape(str(root))}/', re.MULTILINE)
    return directive.sub(r"\1", text)


def asked_for(task: CompileTask, variant: Variant, deciding: Sequence[tuple[str, str]]) -> list[Any]:
    """What is known of a build before it: all that decides it but what it reads."""
    entries = (variant.entry, variant.combine, *variant.others)
    facts: list[Any] = [variant.name, variant.compiler, variant.arch, variant.source, entries]
    facts += [_HOW_READ] if variant.compiler else []
    return [*facts, task.source_hashes[variant.sources], task.toolchain.digest, task.flags_of(variant), deciding]
