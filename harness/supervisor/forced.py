"""A key that can do nothing but run commits: `command=` of its line in authorized_keys starts an agent of its own.

That agent is a copy which the account's owner has installed. The sources that a client sends ahead of its request are
read and dropped. A request then has to be one of a few, with the settings that the owner wrote down: what is set up,
with which interpreter, compiler, device and variables, where the host fetches from, and what is protected. It may take
no more of the host than they say: time, workers, drawn cases. So whoever has the key chooses the commit, and of a
commit only what is not protected.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from fmha.harness.supervisor import GREETING, OF_THE_JOB, agent
from fmha.harness.supervisor.rundir import HostError, RunDirectory, read_json, runs, write_json

FOLDER = "forced"
MOST_LINE_BYTES = 1 << 16
MOST_PACKAGE_BYTES = 8 << 20
_POLICY = "policy.json"
_PLACES = "places.lock"
_RUN = """import sys
sys.path.insert(0, {home!r})
from fmha.harness.supervisor.forced import serve
sys.exit(serve({folder!r}))
"""
MAY = frozenset({"start", "occupancy", "examine", "follow", "list", "logs", "cancel"})


def install(folder: Path, policy: Mapping[str, Any]) -> str:
    """Copies this agent into the working folder, with what it may do, and returns the command that starts the copy."""
    package = Path(__file__).resolve().parents[3]
    name = hashlib.sha256(json.dumps([package.name, policy], sort_keys=True).encode()).hexdigest()[:16]
    home = folder / FOLDER / name
    if not home.is_dir():
        home.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=home.parent))
        shutil.copytree(package, part / package.name, ignore=shutil.ignore_patterns("__pycache__"))
        write_json(part / _POLICY, dict(policy))
        (part / "run.py").write_text(_RUN.format(home=str(home / package.name), folder=str(home)), encoding="utf-8")
        try:
            part.rename(home)
        except OSError:
            shutil.rmtree(part)
            if not home.is_dir():
                raise
    return shlex.join([sys.executable, "-IS", str(home / "run.py")])


def serve(home: str) -> int:
    """The agent of a forced command; `home` is what `install` has made."""
    os.umask(0o077)
    offered = _dropped(sys.stdin.buffer)
    if offered is None:
        print("this key is for fmha alone: it has no shell, and copies no files", file=sys.stderr)
        return 1
    print(GREETING, end="", flush=True)
    own = Path(__file__).resolve().parents[3].name
    if offered != own:
        what = "this key starts the agent of another version of fmha than yours"
        print(json.dumps({"error": what, "next": agent.OWNER, "usage": False}), flush=True)
        return 0
    folder = Path(home).parents[1]
    return agent.main(str(folder), _rule(read_json(Path(home) / _POLICY), folder), MAY)


def _dropped(stream: IO[bytes]) -> str | None:
    """Reads what a client sends before its request; the digest of what it would have run, None if it is no client."""
    stream.readline(MOST_LINE_BYTES)
    try:
        spec = json.loads(stream.readline(MOST_LINE_BYTES))
        size, digest = spec["size"], spec["digest"]
    except (ValueError, TypeError, KeyError):
        return None
    if type(size) is not int or not 0 <= size <= MOST_PACKAGE_BYTES or len(stream.read(size)) != size:
        return None
    return str(digest)


def _rule(policy: dict[str, Any], folder: Path) -> Callable[[dict[str, Any]], None]:
    def check(request: dict[str, Any]) -> None:
        """Raises HostError for what the key may not do."""
        operation = request["op"]
        if operation == "start":
            _check_job(request["job"], policy, folder)
        elif operation == "occupancy":
            _same("gpus", request["gpu"], policy["gpu"])
        elif operation == "examine":
            for name, value in request["settings"].items():
                _same(name, value, policy.get(name))

    return check


def _check_job(job: dict[str, Any], policy: dict[str, Any], folder: Path) -> None:
    """As `check`. The commit comes from the client where it may. What runs beside it, as its judge or timed, has to
    be approved as well: a judge of the client's own would be a way around all of this."""
    job["forced"] = True
    job["isolation"] = policy["isolation"]  # the owner's word, whatever is asked for
    if job["approve_protected"]:
        raise HostError("this key may not approve changes of protected files", _APPROVE, usage=True)
    if not any((folder / "approved").glob("*.json")):
        raise HostError("nothing has been approved here yet, and this key may not approve", _APPROVE, usage=True)
    for name in OF_THE_JOB:
        _same(name, job[name], policy[name])
    if job.get("secrets"):
        what = "this key may not bring secrets: they would be variables of the set-up"
        raise HostError(what, agent.OWNER, usage=True)
    _same("keep", {name: value for name, value in job["keep"].items() if name != "spare"}, policy["keep"])
    _same("device", job["work"]["device"], policy["device"])
    _same("arch", [job["work"]["arch"]], policy["archs"])
    rest = {name: value for name, value in job["gpu"].items() if name not in ("priority", "count")}
    _same("gpus", rest, {name: value for name, value in policy["gpu"].items() if name != "count"})
    _bound(job, policy)
    if job["sync"]["direct"]:
        job["sync"]["url"] = ""
    else:
        _same("fetch_url", job["sync"]["url"], policy["fetch_url"] or None)


def _bound(job: dict[str, Any], policy: dict[str, Any]) -> None:
    """Raises HostError where a job takes more of the host than the policy lets it: nobody else decides how much a
    commit takes whose key may be anybody's. What the job does not say is the policy's."""
    job["key"] = most = policy["key"]
    work, limits, gpu = job["work"], job["limits"], job["gpu"]
    _at_most("limits.build_seconds", limits["build_seconds"], most["seconds"], "seconds")
    _at_most("limits.total_seconds", limits["total_seconds"], most["seconds"], "seconds")
    for request in (work["request"], job["order"]["request"]):
        _at_most("random_cases", request.get("random_cases") or 0, most["random_cases"], "random_cases")
    _at_most("workers", work["workers"], most["workers"] or os.cpu_count() or 1, "workers")
    work["workers"] = work["workers"] or most["workers"]
    _at_most("gpus.count", gpu["count"], policy["gpu"]["count"], "workers")
    if gpu["query"] and most["workers"]:
        gpu["count"] = min(gpu["count"], most["workers"])


def _at_most(name: str, asked: float, most: float, setting: str) -> None:
    if asked > most:
        what = f"this key may not ask for {name} of {asked:g}: {most:g} is the most, as the host's key.{setting} has it"
        raise HostError(what, agent.OWNER, usage=True)


@contextlib.contextmanager
def place(folder: Path, key: Mapping[str, Any]) -> Iterator[None]:
    """A place for one more run of such keys, which is to begin in it. HostError where all are taken; whoever asks at
    the same time waits for that answer."""
    with (folder / FOLDER / _PLACES).open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)  # which a run that is forked in here does not hold on to
        taken = sum(run.live() and _of_a_key(run) for run in runs(folder))
        if taken >= key["runs"]:
            what = f"as many runs of keys that can only run commits are here as may be at once, {key['runs']}"
            raise HostError(what, f"wait for one of them to end, or set key.runs: {agent.OWNER}")
        yield


def _of_a_key(run: RunDirectory) -> bool:
    try:
        return bool(run.job().get("forced"))
    except FileNotFoundError:  # one of the owner's own, which is about to begin
        return False


_APPROVE = "look at the change, and run it once with the account's own login and --approve-protected"


def _same(name: str, asked: Any, allowed: Any) -> None:
    if asked != allowed:
        what = f"this key may not choose {name}: what the host's section of matrix.yaml has is another"
        raise HostError(what, agent.OWNER, usage=True)
