"""What `fmha doctor --host` asks of a host: one finding a line, each with what to do when it is red."""

from __future__ import annotations

import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fmha.harness import isolate
from fmha.harness.supervisor import gpus, locks, slurm
from fmha.harness.supervisor.rundir import HostError
from fmha.harness.worker.processes.groups import run_group

COMMAND_SECONDS = 60.0
LEAST_FREE_BYTES = 5 << 30
LEAST_GIT = (2, 29)  # `git fetch --no-write-fetch-head`
LEAST_NVCC = (12, 9)
Finding = dict[str, Any]


def examine(folder: Path, settings: dict[str, Any]) -> list[Finding]:
    """One finding a check: its name, whether it is good, what was seen, and what to do. A check never stops another."""
    findings = []
    for check in (_python, _git, _folder, _disk, _isolation, _nvcc, _gpus, _slurm, _locks, _linger):
        try:
            findings += list(check(folder, settings))
        except (OSError, HostError, ValueError) as error:
            findings.append(_finding(check.__name__.strip("_"), False, str(error), getattr(error, "next_step", "")))
    return findings


def _finding(name: str, good: bool | None, seen: str, fix: str = "") -> Finding:
    """`good` is None for what is only reported."""
    return {"name": name, "good": good, "seen": seen, "fix": "" if good else fix}


def _python(folder: Path, settings: dict[str, Any]) -> Iterator[Finding]:
    yield _finding("python", True, f"{platform.python_version()} on {platform.machine()}")


def _git(folder: Path, settings: dict[str, Any]) -> Iterator[Finding]:
    found = re.search(r"(\d+)\.(\d+)", _says(["git", "--version"]))
    good = found is not None and (int(found[1]), int(found[2])) >= LEAST_GIT
    need = ".".join(map(str, LEAST_GIT))
    yield _finding("git", good, found[0] if found else "no git answers", f"install git >= {need} on the host")


def _folder(folder: Path, settings: dict[str, Any]) -> Iterator[Finding]:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass
    yield _finding("folder", True, str(folder))


def _disk(folder: Path, settings: dict[str, Any]) -> Iterator[Finding]:
    free = shutil.disk_usage(folder).free
    fix = "fmha clean --host removes old runs; or set folder to a larger disk"
    yield _finding("disk", free >= LEAST_FREE_BYTES, f"{free / (1 << 30):.1f} GiB free", fix)


def _nvcc(folder: Path, settings: dict[str, Any]) -> Iterator[Finding]:
    fix = f"install CUDA >= {LEAST_NVCC[0]}.{LEAST_NVCC[1]} or set nvcc to one"
    path = settings["nvcc"] or shutil.which("nvcc", path=settings["env"].get("PATH"))
    if not path:
        yield _finding("nvcc", None, "none on PATH; the environment may bring one", fix)
        return
    found = re.search(r"release (\d+)\.(\d+)", _says([path, "--version"]))
    if found is None:
        yield _finding("nvcc", False, f"{path} does not answer like an nvcc", fix)
        return
    known = (int(found[1]), int(found[2])) >= LEAST_NVCC
    yield _finding("nvcc", known, f"{found[1]}.{found[2]}, {path}", fix)
    listed = _says([path, "--list-gpu-arch"]).split()
    for arch in settings["archs"]:
        number = arch.removeprefix("sm_").rstrip("af")
        good = f"compute_{number}" in listed
        yield _finding(f"nvcc for {arch}", good, "known" if good else "unknown to this nvcc", fix)


def _isolation(folder: Path, settings: dict[str, Any]) -> Iterator[Finding]:
    """What keeps a commit's code from the host."""
    found = isolate.isolation("auto")
    yield _finding("isolation", None if found.missing else True, found.told, found.advice)


def _gpus(folder: Path, settings: dict[str, Any]) -> Iterator[Finding]:
    if not settings["gpu"]["query"]:
        yield _finding("gpu", None, f"not needed by device {settings['device']}")
        return
    rules = gpus.Rules.of(settings["gpu"], folder)
    for gpu in gpus.choose(rules):
        mode = f"compute mode {gpu.mode}"
        seen = f"{gpu.name}, compute capability {gpu.compute_capability}, {mode}, {gpu.uuid}"
        yield _finding(f"gpu {gpu.index}", True, seen)
        yield _finding("driver", True, gpu.driver)
        there = gpus.processes_on(rules, gpu.uuid)
        names = ", ".join(f"{pid} ({name})" for pid, name in there.items())
        yield _finding(f"gpu {gpu.index} free", not there, names or "no process", "ask their owners, or wait")


def _slurm(folder: Path, settings: dict[str, Any]) -> Iterator[Finding]:
    """Whether the controller answers; Slurm's own words say which partitions there are."""
    if not settings.get("slurm"):
        return
    try:
        seen = slurm.partitions(settings["env"])
    except slurm.AwayError as error:
        yield _finding("slurm", False, str(error), "ask its administrator whether the controller runs")
        return
    wanted = settings["slurm"]["partition"]
    good = not wanted or wanted in seen
    yield _finding("slurm", good, f"partitions {', '.join(seen)}", f"no partition is named {wanted}: correct it")


def _locks(folder: Path, settings: dict[str, Any]) -> Iterator[Finding]:
    """Takes a lock as a run would, and looks whether another process of this host would see who has it."""
    rules = gpus.Rules.of(settings["gpu"], folder)
    probe = f"doctor-{os.getpid()}"
    space = locks.LockSpace(rules.locks)
    names = space.take(probe, "")
    try:
        mine = space.look().locks.get(probe)
    finally:
        for name in names or ():
            name.close()
        space.close()
    seen = mine is not None and (mine.uid, mine.pid) == (os.getuid(), os.getpid())
    how = f"taken and seen as {mine.account}'s" if mine is not None and seen else "taken, but not seen by others"
    yield _finding("locks", seen, how, "runs here need Linux's /proc/net/unix")
    for gpu, words in gpus.quarantined(rules).items():
        since = f"quarantined since run {words['run']}: processes {words['pids']}"
        yield _finding(f"gpu {gpu}", False, since, "reset the GPU, or wait until they are gone")
    for row in gpus.occupancy(rules):
        yield _finding(f"gpu {row['gpu']}", None, gpus.told(row))


def _linger(folder: Path, settings: dict[str, Any]) -> Iterator[Finding]:
    """systemd-logind may kill what a user leaves behind at log-out, a detached supervisor too."""
    kills = False
    for path in (Path("/etc/systemd/logind.conf"), *sorted(Path("/etc/systemd/logind.conf.d").glob("*.conf"))):
        if path.is_file():
            for value in re.findall(r"^\s*KillUserProcesses\s*=\s*(\w+)", path.read_text(), re.MULTILINE):
                kills = value.lower() in ("yes", "true", "1", "on")
    lingers = (Path("/var/lib/systemd/linger") / str(os.environ.get("USER", ""))).exists()
    seen = "killed at log-out" if kills and not lingers else "outlive the connection"
    yield _finding("detached runs", not kills or lingers, seen, "loginctl enable-linger on the host")


def _says(command: list[str]) -> str:
    try:
        done = run_group(command, cwd=Path("/"), limit_seconds=COMMAND_SECONDS)
    except OSError:
        return ""
    return "" if done.timed_out else done.output
