"""Compiles the kernel variants: .cu to PTX, that PTX to a cubin, both kept in the build cache.

The cubin is assembled from the very PTX that the emulator runs, so that what one device proves is what another
executes.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from fmha.harness.contract.codec import encode
from fmha.harness.contract.protocol import BuildResult, Resources, Variant
from fmha.harness.kernel_side.recipe import ASSEMBLE, flags
from fmha.harness.worker.compilers import cache
from fmha.harness.worker.compilers.nvcc import Nvcc, NvccError, find_nvcc
from fmha.harness.worker.compilers.ptxas import parse_resources
from fmha.harness.worker.process import Completed, describe_exit, run_group

MOST_NAMED = 3  # of the variants that are still to be built
RECIPE = 3  # part of the cache key: raise it when the steps below change
LOG = "compiler.log"  # beside the artefacts: what the compilers said of them
# ptxas also says in its notes that it serialises every wgmma of a kernel whose registers it cannot follow.
_WARNING = re.compile(r".*(?:\bwarning\s*[#:]|serialized).*", re.IGNORECASE)
# They would change what is built without showing in the cache key.
_HIDDEN_FLAGS = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
_INTERPRETED = frozenset('$`"\\\n')
ROOM_BYTES = 16 << 20  # without so much room on the disk a failed build says nothing about the kernel
# What nvcc, its shell and gcc's driver say of a child that was killed; what we kill ourselves has timed out.
_KILLED = re.compile(
    r".*died due to signal (?:9|15)\b.*|.*Killed signal terminated program.*|^(?:SIGKILL|exit code (?:137|143))\Z",
    re.MULTILINE,
)
_MEMORY = re.compile(r".*(?:out of memory allocating|virtual memory exhausted|std::bad_alloc|Cannot allocate memory).*")
_HEADLINE = re.compile(r"\b(error|fatal)\s*:")
_NO_SPACE = (
    *(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)),
    str(signal.strsignal(signal.SIGXFSZ)),
    signal.SIGXFSZ.name,
)


# What nvcc is given for a variant's PTX, and to assemble it.
Flags = Callable[[Variant], tuple[tuple[str, ...], tuple[str, ...]]]


class _BuildError(Exception):
    """One variant cannot be built: a headline, then the detail."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Task:
    """What every variant of one call has in common."""

    root: Path
    cache: Path
    nvcc: Nvcc
    source_hashes: Mapping[tuple[str, ...], str]  # by the sources of a variant
    flags_of: Flags
    limit_seconds: float
    cancel: threading.Event


def build_variants(
    root: Path,
    variants: Sequence[Variant],
    cache_dir: Path,
    limit_seconds: float,
    jobs: int,
    on_progress: Callable[[str], None],
    flags_of: Flags | None = None,
) -> list[BuildResult]:
    """Builds `variants` of the sources under `root`, `jobs` at a time, each within `limit_seconds`; results in order.

    A variant that cannot be built has its `error` set: a headline, then the compiler's own words. Raises NvccError when
    there is no compiler, and CacheError when the cache cannot be used. `on_progress` is called from this thread. An
    exception that passes through here, KeyboardInterrupt included, first ends every compiler that is running.
    """
    root = root.resolve()
    for path in (root, cache_dir.resolve()):
        _refuse_commands(path)
    task = _Task(
        root,
        cache_dir.resolve(),
        find_nvcc(),
        {variant.sources: hash_sources(root, variant.sources) for variant in variants},
        flags_of or _own_flags,
        limit_seconds,
        threading.Event(),
    )
    with ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="build") as pool:
        try:
            on_progress(f"{len(variants)} kernel variant(s), {task.nvcc.version}")
            started = time.monotonic()
            futures = [pool.submit(_build, task, variant) for variant in variants]
            for done, future in enumerate(as_completed(futures), 1):
                waiting = [v.name for v, other in zip(variants, futures, strict=True) if not other.done()]
                said = f"[{done}/{len(variants)}] {_summary(future.result())}"
                on_progress(said + _remaining(waiting, done, time.monotonic() - started))
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


def hash_sources(root: Path, names: Sequence[str] = ("kernel",)) -> str:
    """sha256 over the names and bytes of files, and of every file under folders, hidden ones left out."""
    digest = hashlib.sha256()
    for path in (path for name in names for path in _sources(root / name)):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()


def _sources(folder: Path) -> Iterator[Path]:
    if folder.is_file():
        yield folder
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


def _build(task: _Task, variant: Variant) -> BuildResult:
    start = time.monotonic()
    if not variant.source:  # a callable: nothing is built
        return _result(task, variant, task.cache, None, start, cached=True)
    key = _key(task, variant)
    entry = task.cache / f"{variant.name}-{key[:32]}"
    try:
        if (manifest := cache.lookup(entry, key)) is not None:
            return _result(task, variant, entry, manifest, start, cached=True)
        with cache.workspace(task.cache) as folder:
            try:
                facts = _compile(task, variant, folder)
            except _BuildError:
                _require_room(folder)
                raise
            manifest = cache.publish(folder / "entry", entry, key, facts)
        return _result(task, variant, entry, manifest, start, cached=False)
    except _BuildError as error:
        return _result(task, variant, entry, None, start, cached=False, error=str(error))
    except OSError as error:
        raise cache.cache_error(task.cache, error) from error


def _compile(task: _Task, variant: Variant, folder: Path) -> dict[str, Any]:
    """Fills `folder`/entry with the artefacts, and returns what the manifest says about them."""
    work, scratch = folder / "entry", folder / "scratch"
    work.mkdir()
    scratch.mkdir()
    ptx, cubin = work / f"{variant.name}.ptx", work / f"{variant.name}.cubin"
    deadline = time.monotonic() + task.limit_seconds
    compile_flags, assemble_flags = task.flags_of(variant)
    said = ""
    if variant.compiler:
        where, name = variant.compiler.split(" ")
        command = [sys.executable, "-P", "-m", "fmha.harness.worker.compilers.compile", where, name, variant.example]
        said = _run(task, [*command, variant.arch, str(ptx)], scratch, deadline).output
    elif variant.source.endswith(".ptx"):  # another compiler has made it
        shutil.copyfile(task.root / variant.source, ptx)
    else:
        said = _run_nvcc(task, [*compile_flags, "-ptx", "-o", str(ptx), variant.source], scratch, deadline).output
    _relative_paths(ptx, task.root)
    assemble = [*assemble_flags, f"-arch={variant.arch}", "-cubin", "-o", str(cubin), str(ptx)]
    log = _run_nvcc(task, assemble, scratch, deadline).output
    (work / LOG).write_text(said + log, encoding="utf-8")
    entries = [variant.entry, *_beside(variant)]
    resources = {entry: parse_resources(log, entry) for entry in entries}
    if missing := [entry for entry, used in resources.items() if used is None]:
        raise _BuildError(f"ptxas reports no entry {missing[0]} in {variant.source}\n{log}")
    if not cubin.is_file():
        raise _BuildError(f"nvcc wrote no cubin\n{log}")
    if hash_sources(task.root, variant.sources) != task.source_hashes[variant.sources]:
        raise _BuildError("the kernel's sources changed while they were compiled; build again")
    return {"variant": variant.name, "nvcc": task.nvcc.version, "resources": encode(resources)}


def _run_nvcc(task: _Task, arguments: Sequence[str], scratch: Path, deadline: float) -> Completed:
    return _run(task, [str(task.nvcc.path), *arguments], scratch, deadline)


def _run(task: _Task, command: Sequence[str], scratch: Path, deadline: float) -> Completed:
    """Runs a compiler in the root, so that relative paths are the same on every machine; _BuildError unless it
    succeeds."""
    env = {name: value for name, value in os.environ.items() if name not in _HIDDEN_FLAGS}
    completed = run_group(
        command,
        cwd=task.root,
        limit_seconds=max(0.0, deadline - time.monotonic()),
        env=env | {"TMPDIR": str(scratch), "LC_ALL": "C"},
        cancel=task.cancel,
    )
    if completed.timed_out:
        raise _BuildError(
            f"{Path(command[0]).name} exceeded {task.limit_seconds:g} s, killed\n{completed.output}".rstrip()
        )
    if completed.returncode != 0:
        said = f"{completed.output}\n{describe_exit(completed.returncode)}"
        if not task.cancel.is_set() and (found := _KILLED.search(said) or _MEMORY.search(said)):
            raise NvccError(
                f"the compiler was ended from outside, or for want of memory: {found[0].strip()}",
                where=command[-1],
                next_step="dmesg says whether memory ran out; build with more of it",
            )
        if reason := next((text for text in _NO_SPACE if text in said), None):
            raise OSError(errno.ENOSPC, reason)
        raise _BuildError(_explain(completed))
    return completed


def _require_room(folder: Path) -> None:
    """Raises OSError when the disk is all but full. What a compiler says of a file that it could not write whole is
    seldom the reason, and what it had written it has removed again by then."""
    with tempfile.TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, ROOM_BYTES)


def _explain(completed: Completed) -> str:
    """nvcc's first line that says what is wrong, then all the others."""
    lines = [line for line in completed.output.splitlines() if line.strip()]
    headline = next((line for line in lines if _HEADLINE.search(line)), lines[-1] if lines else "")
    rest = [line for line in lines if line is not headline]
    return "\n".join([headline.strip() or f"nvcc failed with {describe_exit(completed.returncode)}", *rest])


def _relative_paths(ptx: Path, root: Path) -> None:
    """nvcc makes the paths in `.file` absolute; here they stay relative to the root, the same in every checkout."""
    if not ptx.is_file():
        raise _BuildError("nvcc wrote no PTX")
    text = ptx.read_text(encoding="utf-8")
    directive = re.compile(rf'^(\s*\.file\s+\d+\s+"){re.escape(str(root))}/', re.MULTILINE)
    ptx.write_text(directive.sub(r"\1", text), encoding="utf-8")


def _key(task: _Task, variant: Variant) -> str:
    entries = (variant.entry, variant.combine, *variant.others)
    facts = (
        RECIPE,
        variant.compiler,
        task.source_hashes[variant.sources],
        task.nvcc.version,
        variant.source,
        entries,
        *task.flags_of(variant),
    )
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _result(
    task: _Task,
    variant: Variant,
    entry: Path,
    manifest: dict[str, Any] | None,
    start: float,
    *,
    cached: bool,
    error: str | None = None,
) -> BuildResult:
    return BuildResult(
        variant=variant,
        ptx=str(entry / f"{variant.name}.ptx") if manifest else "",
        cubin=str(entry / f"{variant.name}.cubin") if manifest else "",
        resources=_most_used(manifest, [variant.entry]),
        source_hash=task.source_hashes[variant.sources],
        nvcc=task.nvcc.version,
        flags=task.flags_of(variant)[0],
        seconds=time.monotonic() - start,
        cached=cached,
        error=error,
        combine_resources=_most_used(manifest, _beside(variant)),
    )


def _beside(variant: Variant) -> list[str]:
    """The entries that are launched beside the variant's own."""
    return [*([variant.combine] if variant.combine else []), *variant.others]


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
    return list(dict.fromkeys(line.strip() for line in _WARNING.findall(log)))
