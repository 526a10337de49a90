"""The sandbox of a run on its host, as the host's setting `isolation` or the policy of a limited key says.

A judge that has a wall of its own (harness/isolate in its tree) runs outside and keeps each part of the commit behind
it, with the best that the host has; around it a second one would leave the inner ones the weaker mechanism, since what
is enclosed makes no user namespaces. The runner of an older judge has none, and is enclosed whole: it reads the run's
folder, with the trees in it, its environment, and the compiler; it writes the workers' folder and the cache of builds;
it has no network. The supervisor stays outside: it has the lease of the GPU, the limits and the final status, and ends
whatever is inside as it ends a process group. So does the set-up command. It is the owner's word, needs the network,
and is run for a judge's tree.
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
class Enclosed:
    """A command to spawn with its environment, and what isolates it: a mechanism, or why there is none."""

    command: list[str]
    environment: dict[str, str]
    mechanism: str
    missing: str
    whole: bool = False  # the runner itself is in it, where the mechanism may not be had a second time


def enclosed(
    command: Sequence[str], directory: RunDirectory, judge: Path, job: Mapping[str, Any], settings: Mapping[str, str]
) -> Enclosed:
    """The runner's command for this run, in the tree `judge`, enclosed as the job's `isolation` says; `settings` are
    variables that it gets besides the job's. Raises HostError where the host cannot give what is required."""
    inner, environment = bare(command, settings, job)
    wanted = job.get("isolation", "auto")
    if wanted == "off":
        return Enclosed(inner, environment, "none", "not isolated: switched off for this host")
    if job.get("slurm"):
        return _bare(inner, environment, wanted, "not isolated: its tasks are the scheduler's, which needs the network")
    try:
        found = isolate.isolation(wanted)
    except isolate.IsolationError as error:
        return _bare(inner, environment, wanted, error.what, error.next_step)
    if found.mechanism == "none":
        return _bare(inner, environment, wanted, found.missing, found.advice)
    if (judge / "harness" / "isolate" / "__init__.py").is_file():
        return Enclosed(inner, environment, found.mechanism, "")
    written = [directory.path / "workers", directory.folder / "cache"]
    for folder in written:
        folder.mkdir(exist_ok=True)
    grant = isolate.Grant(
        read=tuple(dict.fromkeys([directory.path, *_places(command[0]), *_compiler(job, environment)])),
        write=tuple(written),
        gpu=bool(job["gpu"]["query"]),
    )
    words, variables = isolate.enclose(inner, grant, cwd=judge, environment=environment, policy=wanted)
    variables |= {**job["env"], **settings, POLICY: wanted}
    return Enclosed(list(words), variables, found.mechanism, "", whole=True)


def bare(
    command: Sequence[str], settings: Mapping[str, str], job: Mapping[str, Any]
) -> tuple[list[str], dict[str, str]]:
    """The command and the environment of a runner that nothing encloses as a whole."""
    policy = {} if job.get("isolation", "auto") == "off" or job.get("slurm") else {POLICY: job.get("isolation", "auto")}
    return ["/bin/sh", "-c", _WITH_PARENT, "sh", *command], {**os.environ, **settings, **policy}


def _bare(command: list[str], environment: dict[str, str], wanted: str, why: str, advice: str = "") -> Enclosed:
    if wanted == "require":
        step = advice or "the host's owner can say isolation: auto, in its settings or with fmha hosts key --isolation"
        raise HostError(f"the host requires a sandbox for what a commit brings, and has none: {why}", step)
    return Enclosed(command, environment, "none", why)


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
