"""The sandbox of a run on its host, as the host's setting `isolation` or the policy of a limited key says.

Where another commit judges, or the harness is file by file the default branch's, the runner is outside and keeps each
part of the commit behind a wall of its own (harness/isolate in its tree), with the best that the host has. A harness
that is the judged commit's own is enclosed as a whole, as is one of before there was a wall: it reads the run's folder,
with the trees in it, the host's builds, its environment, and the compiler; it writes the workers' folder and a cache of
builds of its own (build_cache.py); it has no network. What such a harness encloses itself gets Landlock, since no user
namespace can be made inside of one; for a GPU, whose driver is known to start in the outer sandbox, nothing more is
enclosed.

The supervisor stays outside: it has the lease of the GPU, the limits and the final status, and ends whatever is inside.
So does the set-up command. It is the owner's word, needs the network, and is run for a judge's tree.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fmha.harness import isolate
from fmha.harness.supervisor.rundir import HostError, RunDirectory
from fmha.harness.worker.processes.groups import run_group

POLICY = isolate.VARIABLE
ASK_SECONDS = 60.0
# Where an interpreter of an environment looks for modules, and what it is made of.
_PLACES = "import json, sys; print(json.dumps([sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path]))"
# A runner that ends with its parent asks who that is: inside of a sandbox it is another than the supervisor.
_WITH_PARENT = 'exec "$@" --parent "$PPID"'


@dataclass(frozen=True)
class EnclosedCommand:
    """A command to spawn with its environment, and what isolates it: a mechanism, or why there is none."""

    command: list[str]
    environment: dict[str, str]
    mechanism: str
    missing: str
    whole: bool = False  # the runner itself is in it, where the mechanism may not be had a second time


def is_own(job: Mapping[str, Any]) -> bool:
    """Whether the harness that judges is the judged commit's own, and not the default branch's. That it is is the
    client's word, which does not count where its key can only run commits."""
    return not job.get("judge") and not (job.get("alike") and not job.get("forced"))


def enclosed(
    command: Sequence[str],
    directory: RunDirectory,
    judge: Path,
    job: Mapping[str, Any],
    settings: Mapping[str, str],
    cache: Path,
) -> EnclosedCommand:
    """The runner's command for this run, in the tree `judge`, enclosed as the job's `isolation` says; `settings` are
    variables that it gets besides the job's, `cache` is where it builds. Raises HostError where the host cannot give
    what is required."""
    inner, environment = bare(command, settings, job)
    wanted = job.get("isolation", "auto")
    if wanted == "off":
        return EnclosedCommand(inner, environment, "none", "not isolated: switched off for this host")
    if job.get("slurm"):
        return _bare(inner, environment, wanted, "not isolated: its tasks are the scheduler's, which needs the network")
    try:
        found = isolate.isolation(wanted)
    except isolate.IsolationError as error:
        return _bare(inner, environment, wanted, error.what, error.next_step)
    if found.mechanism == "none":
        return _bare(inner, environment, wanted, found.missing, found.advice)
    walled = (judge / "harness" / "isolate" / "__init__.py").is_file()
    if walled and not is_own(job):
        return EnclosedCommand(inner, environment, found.mechanism, "")
    if walled and found.mechanism == "landlock" and job["gpu"]["query"] and os.geteuid() == 0:
        # CUDA's driver does not start where it may not name its threads (isolate/system_paths.py).
        raise HostError(
            "a harness of the commit's own gets no GPU as root where there is Landlock alone",
            "install bubblewrap on the host, log in as another account than root, or name a judge with --judge",
        )
    written = [directory.path / "workers", cache]
    for folder in written:
        folder.mkdir(exist_ok=True)
    shared = [path for path in (directory.folder / cache.name,) if path.is_dir()]  # what its own has links to
    read = [directory.path, *shared, *_environment(directory, Path(command[0]))]
    read += [*_places(command[0]), *_compiler(job, environment)]
    grant = isolate.Grant(
        read=tuple(dict.fromkeys(read)),
        write=tuple(written),
        gpu=bool(job["gpu"]["query"]),
        groups=True,  # of its workers; the supervisor finds all that a run has started
    )
    try:
        words, variables = isolate.enclose(inner, grant, cwd=judge, environment=environment, policy=wanted)
    except isolate.IsolationError as error:
        return _bare(inner, environment, wanted, f"not isolated: {error.what}", error.next_step)
    within = wanted if not walled else "off" if grant.gpu else "auto"  # what is required is there already
    variables |= {**job["env"], **settings, POLICY: within}
    return EnclosedCommand(list(words), variables, found.mechanism, "", whole=True)


def bare(
    command: Sequence[str], settings: Mapping[str, str], job: Mapping[str, Any]
) -> tuple[list[str], dict[str, str]]:
    """The command and the environment of a runner that nothing encloses as a whole."""
    policy = {} if job.get("isolation", "auto") == "off" or job.get("slurm") else {POLICY: job.get("isolation", "auto")}
    return ["/bin/sh", "-c", _WITH_PARENT, "sh", *command], {**os.environ, **settings, **policy}


def _bare(command: list[str], environment: dict[str, str], wanted: str, why: str, advice: str = "") -> EnclosedCommand:
    if wanted == "require":
        step = advice or "the host's owner can say isolation: auto, in its settings or with fmha hosts key --isolation"
        raise HostError(f"the host requires a sandbox for what a commit brings, and has none: {why}", step)
    return EnclosedCommand(command, environment, "none", why)


def _environment(directory: RunDirectory, python: Path) -> list[Path]:
    """The folder of the environment that the interpreter is of: its core may lie beside it."""
    folder = directory.folder / "environments"
    return [folder / python.relative_to(folder).parts[0]] if python.is_relative_to(folder) else []


def _places(python: str) -> list[Path]:
    """What the interpreter is made of and where it finds modules; its environment may name folders outside itself."""
    done = run_group([python, "-c", _PLACES], cwd=Path("/"), limit_seconds=ASK_SECONDS)
    try:
        listed = [Path(name) for name in json.loads(done.output) if os.path.isabs(name)]
    except (ValueError, TypeError):
        listed = []  # it does not run: whoever starts the runner says so
    home = Path(os.path.abspath(python)).parents[1]
    return [path for path in (home, *listed) if path.exists() and path != Path("/")]


def _compiler(job: Mapping[str, Any], environment: Mapping[str, str]) -> list[Path]:
    """The CUDA toolkit that the run compiles with; a lone nvcc is a script that knows where its toolkit is."""
    found = job["nvcc"] or shutil.which("nvcc", path=environment.get("PATH"))
    if not found:
        return []
    places = []
    for path in (Path(found), Path(found).resolve()):
        home = path.parent.parent
        places.append(home if (home / "nvvm").is_dir() or (home / "include").is_dir() else path.parent)
    return [path for path in places if path.is_dir() and path != Path("/")]
