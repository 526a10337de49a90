"""Compiles the kernel variants: .cu to PTX, that PTX to a cubin, both kept in the build cache.

The cubin is assembled from the very PTX that the emulator runs, so that what one device proves is what another
executes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

from fmha.harness.contract.protocol import BuildResult, Resources, Variant
from fmha.harness.kernel_side.recipe import ASSEMBLE, flags
from fmha.harness.worker.compilers import cache
from fmha.harness.worker.compilers.at_hand import AtHandOf
from fmha.harness.worker.compilers.build_inputs import inputs_of
from fmha.harness.worker.compilers.build_steps import LOG, CompileTask, Flags, asked_for, beside, compiled
from fmha.harness.worker.compilers.enclosed import BuildError, deciding
from fmha.harness.worker.compilers.hashes import Hashes
from fmha.harness.worker.compilers.hints import with_hint
from fmha.harness.worker.compilers.nvcc import NvccError
from fmha.harness.worker.compilers.place import own_folder
from fmha.harness.worker.compilers.read import beside_sources
from fmha.harness.worker.compilers.sources import counted, hash_sources
from fmha.harness.worker.compilers.special_registers import special_registers
from fmha.harness.worker.compilers.toolchain import found_compiler, toolchain

MOST_NAMED = 3  # of the variants that are still to be built
RECIPE = 6  # part of the cache key: raise it when the steps below change
# ptxas also says in its notes that it serialises every wgmma of a kernel whose registers it cannot follow.
_WARNING = re.compile(r"\bwarning\s*[#:]|serialized", re.IGNORECASE)
_INTERPRETED = frozenset('$`"\\\n')
ROOM_BYTES = 16 << 20  # without so much room on the disk a failed build says nothing about the kernel


def build_variants(
    root: Path,
    variants: Sequence[Variant],
    cache_dir: Path,
    limit_seconds: float,
    jobs: int,
    on_progress: Callable[[str], None],
    flags_of: Flags | None = None,
    at_hand: AtHandOf = lambda variant: None,
) -> list[BuildResult]:
    """Builds `variants` of the sources under `root`, `jobs` at a time, each within `limit_seconds`; results in order.

    A variant that cannot be built has its `error` set: a headline, then the compiler's own words. Raises NvccError when
    there is no compiler, and CacheError when the cache cannot be used. `on_progress` is called from this thread. What
    `at_hand` has of a variant is not compiled again. An exception that passes through here, KeyboardInterrupt included,
    first ends every compiler that is running.
    """
    root = root.resolve()
    for path in (root, cache_dir.resolve()):
        _refuse_commands(path)
    nvcc, said = found_compiler()
    folder = own_folder(cache_dir, root)
    hashes = Hashes(folder)
    task = CompileTask(
        root,
        folder,
        toolchain(nvcc, said, hashes),
        hashes,
        {variant.sources: hash_sources(root, variant.sources) for variant in variants},
        flags_of or _own_flags,
        limit_seconds,
        threading.Event(),
        at_hand,
    )
    with ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="build") as pool:
        try:
            on_progress(f"{len(variants)} kernel variant(s), {task.toolchain.nvcc.version}")
            started = time.monotonic()
            futures = [pool.submit(_build, task, variant) for variant in variants]
            for done, future in enumerate(as_completed(futures), 1):
                waiting = [v.name for v, other in zip(variants, futures, strict=True) if not other.done()]
                said = f"[{done}/{len(variants)}] {_summary(future.result())}"
                on_progress(said + _remaining(waiting, done, time.monotonic() - started))
                while task.notes:
                    on_progress(task.notes.pop(0))
            hashes.save()
            return [future.result() for future in futures]
        except BaseException:
            task.cancel.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _own_flags(variant: Variant) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return flags(variant), ASSEMBLE


def _refuse_commands(path: Path) -> None:
    """nvcc hands its command lines to a shell, and quotes them so that `$(...)` in a path is still carried out."""
    if _INTERPRETED.intersection(str(path)):
        raise NvccError(
            "nvcc would have a shell interpret this path", where=repr(str(path)), next_step='use one without $ ` " \\'
        )


def _build(task: CompileTask, variant: Variant) -> BuildResult:
    start = time.monotonic()
    if not variant.source:  # a callable: nothing is built
        return _result(task, variant, task.cache, None, start, cached=True)
    asked = _asked(task, variant)
    entry = task.cache
    try:
        for entry in cache.candidates(task.cache, variant.name, asked):
            if (manifest := _current(task, variant, entry, asked)) is not None:
                cache.touch(entry)
                return _result(task, variant, entry, manifest, start, cached=True)
        with cache.workspace(task.cache) as folder:
            try:
                facts, inputs, processor = compiled(task, variant, folder)
            except BuildError:
                _require_room(folder)
                raise
            facts["inputs"] = None if inputs is None else inputs.plain()
            key = _key(asked, facts["inputs"])
            entry = task.cache / cache.name_of(variant.name, asked, key)
            manifest = cache.publish(folder / "kept", entry, key, facts)
        cache.trim(task.cache)
        return replace(_result(task, variant, entry, manifest, start, cached=False), processor_seconds=processor)
    except BuildError as error:
        own = variant.head_dim is None and not variant.compiler
        said = with_hint(str(error), variant.arch, task.root) if own else str(error)
        return _result(task, variant, entry, None, start, cached=False, error=said)
    except OSError as error:
        raise cache.cache_error(task.cache, error) from error


def _current(task: CompileTask, variant: Variant, entry: Path, asked: str) -> dict[str, Any] | None:
    """The manifest of an entry whose inputs are what is there now; None where they are not, or the entry is damaged."""
    with contextlib.suppress(KeyError, TypeError, AttributeError):
        known = (cache.read_manifest(entry) or {})["inputs"]
        if known is None:
            return None  # it is not known what that build has read
        key = _key(asked, known)
        if entry.name == cache.name_of(variant.name, asked, key):
            if not inputs_of(known).hold(task.root, task.hashes):
                return None
            if (whole := cache.lookup(entry, key)) is not None:
                return whole
    task.notes.append(f"{variant.name}: an entry of the build cache is damaged and is not taken: {entry}")
    cache.discard(entry)
    return None


def _asked(task: CompileTask, variant: Variant) -> str:
    """The hash of what is known before a build."""
    facts: list[Any] = [RECIPE, *asked_for(task, variant, deciding())]
    if variant.compiler:
        facts += [sys.version, os.environ.get("PATH", "")]
        wanted = counted(variant.sources)
        facts += [hash_sources(task.root, wanted)] if wanted != variant.sources else []
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _key(asked: str, inputs: Mapping[str, Any] | None) -> str:
    """The hash that an entry is named by; one of its own where it is not known what was read, so that none is found."""
    read = secrets.token_hex() if inputs is None else json.dumps(inputs, sort_keys=True)
    return hashlib.sha256(f"{asked} {read}".encode()).hexdigest()


def _require_room(folder: Path) -> None:
    """Raises OSError when the disk is all but full. What a compiler says of a file that it could not write whole is
    seldom the reason, and what it had written it has removed again by then."""
    with tempfile.TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, ROOM_BYTES)


def _result(
    task: CompileTask,
    variant: Variant,
    entry: Path,
    manifest: dict[str, Any] | None,
    start: float,
    *,
    cached: bool,
    error: str | None = None,
) -> BuildResult:
    symbols = tuple(sorted((manifest or {}).get("symbols", {}).items()))
    return BuildResult(
        variant=replace(variant, symbols=symbols) if symbols else variant,
        ptx=str(entry / f"{variant.name}.ptx") if manifest else "",
        cubin=str(entry / f"{variant.name}.cubin") if manifest else "",
        resources=_most_used(manifest, [variant.entry]),
        source_hash=_read_sources(task, variant, manifest),
        nvcc=task.toolchain.nvcc.version,
        flags=task.flags_of(variant)[0],
        seconds=time.monotonic() - start,
        cached=cached,
        error=error,
        combine_resources=_most_used(manifest, beside(variant)),
        special_registers=special_registers((entry / f"{variant.name}.ptx").read_bytes()) if manifest else (),
    )


def _read_sources(task: CompileTask, variant: Variant, manifest: Mapping[str, Any] | None) -> str:
    """The hash of the declared sources, and of what else of the repository was read."""
    inputs = manifest and manifest["inputs"]
    more = beside_sources(task.root, inputs_of(inputs), variant.sources) if inputs else []
    return hash_sources(task.root, (*variant.sources, *more)) if more else task.source_hashes[variant.sources]


def _most_used(manifest: dict[str, Any] | None, entries: Sequence[str]) -> Resources | None:
    """Each figure that of the entry that has the most of it."""
    if not manifest or not entries:
        return None
    used = [manifest["resources"][entry] for entry in entries]
    return Resources(**{name: max(one[name] for one in used) for name in used[0]})


def _remaining(waiting: Sequence[str], done: int, seconds: float) -> str:
    """What is still to be built, and how long that takes at the pace so far."""
    if not waiting:
        return ""
    left = seconds / done * len(waiting)
    named = ", ".join(waiting[:MOST_NAMED]) + (f" and {len(waiting) - MOST_NAMED} more" if waiting[MOST_NAMED:] else "")
    return f"; about {left:.0f} s left for {named}"


def _summary(result: BuildResult) -> str:
    if not result.variant.source:
        return f"{result.variant.name}: called, not built"
    if result.error is not None or result.resources is None:
        return f"{result.variant.name}: {(result.error or '').partition(chr(10))[0]}"
    how = "from the cache" if result.cached else f"built in {result.seconds:.1f} s"
    spilled = result.resources.spill_stores + result.resources.spill_loads
    said = f"{result.variant.name}: {how}, {result.resources.registers} registers, {spilled} bytes spilled"
    warned = warnings(result)
    return said + (f"; {len(warned)} warned of, first: {warned[0]}" if warned else "")


def warnings(result: BuildResult) -> list[str]:
    """What the compilers warned of when they made a variant that is built."""
    log = Path(result.ptx).with_name(LOG).read_text(encoding="utf-8")
    return list(dict.fromkeys(line.strip() for line in log.split("\n") if _WARNING.search(line)))
