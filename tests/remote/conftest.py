"""A server, a project to run on it, and the client as users start it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from fmha.harness.worker.compilers.nvcc import find_nvcc
from tests import forked
from tests.figures import limits
from tests.harness.support import git
from tests.integration.fault_devices import HANGS, KILLED, ORPHANS
from tests.integration.processes import DEADLINE_SECONDS, eventually
from tests.remote.server import Server, client_config, killed, serving, terminate

DEVICE = "tests.remote.devices:HeldDevice"
# What no run reads, but for the devices, what they import, and tests that a commit takes away.
UNREAD = (".github/", "docs/", "tests/", "tools/")
READ = (
    "tests/integration/fault_devices.py",
    "tests/kernel/",
    "tests/remote/devices.py",
    "tests/worker/numpy_device.py",
)
LIMITS = {"build_seconds": 120, "configuration_silence_seconds": 60, "configuration_total_seconds": 120}
GATES = {"default": limits()}


@dataclass
class Client:
    """`fmha`, in a checkout of the project, with an ssh_config of its own."""

    root: Path
    config: Path
    server: Server
    processes: list[subprocess.Popen[str] | forked.Fork]
    network: tuple[str, ...] = ()  # a command prefix that enters the client's network
    home: Path = Path()  # of the account on the server

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str] | forked.Fork:
        env = os.environ | {"FMHA_SSH_CONFIG": str(self.config)} | environment
        process: subprocess.Popen[str] | forked.Fork
        if self.network:
            process = subprocess.Popen(
                [*self.network, sys.executable, "-P", "-m", "fmha", *arguments],
                cwd=self.root,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        else:
            process = forked.Fork(*arguments, cwd=self.root, env=env)
        self.processes.append(process)
        return process

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, **environment)
        stdout, stderr = process.communicate(timeout=3 * DEADLINE_SECONDS)
        assert "Traceback" not in stderr, stderr
        return subprocess.CompletedProcess(process.args, process.wait(), stdout, stderr)

    def detached(self, *arguments: str) -> str:
        """Starts a run, leaves it, and returns its name."""
        done = self.run("run-matrix", "--host", "gpu", "--detach", "-q", *arguments)
        assert done.returncode == 4, done.stderr
        return done.stdout.strip()

    def records(self) -> list[dict[str, object]]:
        return [json.loads(path.read_text()) for path in sorted((self.root / "results").glob("*.json"))]

    def statuses(self) -> dict[str, str]:
        """Of the one record there is."""
        (record,) = self.records()
        return {item["id"]: item["status"] for item in record["configurations"]}

    def runs(self) -> list[Path]:
        """The run directories on the host, the oldest first: names tell only the second."""
        found = []
        for job in (self.home / "fmha" / "runs").glob("*/job.json"):
            with contextlib.suppress(FileNotFoundError):  # a run that is just being removed
                found.append((job.stat().st_mtime_ns, job.parent))
        return [run for _, run in sorted(found)]

    def events(self, run: Path) -> list[dict[str, object]]:
        """What the run has written; a line that is still being written has no end yet and is left for later."""
        try:
            text = (run / "events.jsonl").read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def wait_for(self, condition: Callable[[list[dict[str, object]]], object]) -> Path:
        """The newest run, once its events are such. As long as events come, it is waited for."""

        def found() -> Path | None:
            return next((run for run in reversed(self.runs()) if condition(self.events(run))), None)

        def count() -> int:
            return sum(len(self.events(run)) for run in self.runs())

        def more_than(seen: int) -> Callable[[], bool]:
            return lambda: found() is not None or count() > seen

        seen = -1
        while not (run := found()) and count() > seen:
            seen = count()
            eventually(more_than(seen))
        assert run, [self.events(run) for run in self.runs()]
        return run

    def change_matrix(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Commits another matrix.yaml."""
        path = self.root / "matrix.yaml"
        matrix = yaml.safe_load(path.read_text())
        change(matrix)
        path.write_text(yaml.safe_dump(matrix, sort_keys=False))
        git(self.root, "commit", "-q", "-a", "-m", "another matrix")

    def fresh_kernel(self) -> None:
        """A commit that the host does not have, with a kernel that is in no cache. The host's nvcc, which can be held,
        leaves marks and looks for them where no sandbox would let it."""
        self.change_matrix(lambda matrix: matrix["hosts"]["gpu"].update(isolation="off"))
        path = self.root / "kernel" / "include" / "fmha_params.h"
        path.write_text(path.read_text() + f"// {self.root}\n")
        git(self.root, "commit", "-q", "-a", "-m", "fresh")

    def settle(self) -> None:
        """Nothing of any run is left on the host."""
        assert not eventually_empty(self.server.left_over), self.server.left_over()

    def leave(self) -> None:
        """Ends every client, and waits until nothing of theirs is left on the host.

        The ssh of a client that was killed lives on, and what it has said already may start a run: it and its
        connection have to be gone before a look at the host says that nothing will begin there.
        """
        for process in self.processes:
            terminate(process)
        mark = f"FMHA_SSH_CONFIG={self.config}".encode()
        assert not eventually_empty(lambda: killed(mark)), "a client's ssh does not end"
        assert not eventually_empty(self.server.sessions), self.server.sessions()
        self.settle()

    def lend(self, folder: Path) -> None:
        """Makes a working folder on the host that has what runs have built there before, and knows nothing else."""
        lend(self.home / "fmha", folder, self.server.uid)

    def discard(self, folder: Path) -> None:
        """Removes a folder that runs were told to use, once the last of them has written into it."""
        self.settle()
        shutil.rmtree(folder)


def lend(built: Path, folder: Path, uid: int) -> None:
    """Makes a working folder that has what another has built, and knows nothing else."""
    subprocess.run(["install", "-d", "-m", "700", "-o", str(uid), str(folder)], check=True)
    subprocess.run(["cp", "-a", *(str(built / name) for name in ("cache", "bytecode")), str(folder)], check=True)


def eventually_empty(look: Callable[[], Sequence[object]]) -> Sequence[object]:
    """What was seen last."""
    left: Sequence[object] = []

    def gone() -> bool:
        nonlocal left
        left = look()
        return not left

    eventually(gone)
    return left


def started(name: str) -> Callable[[list[dict[str, object]]], bool]:
    """Whether a configuration has been started."""
    return lambda events: any(
        event["kind"] == "event" and event["event"]["event"] == "started" and event["event"]["config"] == name
        for event in events
    )


def in_state(name: str) -> Callable[[list[dict[str, object]]], bool]:
    return lambda events: any(event["kind"] == "state" and event["state"] == name for event in events)


@pytest.fixture(scope="session")
def public_folder() -> Iterator[Path]:
    """A folder that any account can enter; pytest's own are private."""
    folder = Path(tempfile.mkdtemp(prefix="fmha-remote-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def server(public_folder: Path) -> Iterator[Server]:
    with serving(public_folder / "server") as running:
        yield running


def setup_command(server: Server, folder: Path) -> str:
    """An environment that takes its packages, and the emulator's compiled core, from where these tests run. It holds
    the tests' devices: of a worktree a run finds `fmha` alone by name."""
    script = folder / "environment.sh"
    packages = next(path for path in map(Path, sys.path) if (path / "numpy").is_dir())
    core = next(packages.glob("fmha/emulator/_core*.so"))
    script.write_text(
        f"""set -eu
{server.python} -m venv --without-pip "$FMHA_ENVIRONMENT"
site="$FMHA_ENVIRONMENT"/lib/python3.{sys.version_info.minor}/site-packages
echo {packages} >"$site/here.pth"
[ ! -d tests ] || cp -r tests "$site/"
mkdir -p "$FMHA_ENVIRONMENT/tree/emulator"
cp {core} "$FMHA_ENVIRONMENT/tree/emulator/"
"""
    )
    script.chmod(0o755)
    return f"sh {script}"


@pytest.fixture(scope="session")
def template(public_folder: Path, repository: Path, server: Server) -> Path:
    return make_template(public_folder, repository, server)


def make_template(folder: Path, repository: Path, server: Server, whole: bool = False) -> Path:
    """The project as it stands here, as a repository with one commit and a matrix.yaml for these tests.

    Without what no run reads unless `whole`, which is three quarters of the files, and all objects in one pack: most
    tests have a copy of their own and a worktree on the host, of which every file is looked at several times.
    """
    root = folder / "template"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        unread = name.startswith(UNREAD) and not name.startswith(READ)
        if os.path.lexists(repository / name) and not name.startswith("results/") and (whole or not unread):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(repository / name, root / name, follow_symlinks=False)
    (root / "tests" / "unit").mkdir(parents=True, exist_ok=True)
    (root / "tests" / "unit" / "test_protected.py").write_text("assert True\n")
    write_matrix(root, server, setup_command(server, folder))
    git(root, "init", "-q", "-b", "main", "--template=")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "start")
    git(root, "repack", "-a", "-d", "-q")
    return root


def write_matrix(root: Path, server: Server, setup: str) -> None:
    """matrix.yaml for `gpu`, a loopback host with a stub device, and `real`, the same with the emulator."""
    server.wrap("git", shutil.which("git") or "", "index-pack")
    common = {
        "kind": "ssh",
        "alias": "gpu",
        "python": server.python,
        "nvcc": str(server.wrap("nvcc", str(find_nvcc().path), "-ptx")),
        "sync": "direct",
        "environment": {"setup": setup, "files": ["constraints.txt"]},
        "gpus": {"locks": str(server.folder)},
        "reconnect_seconds": 60,
        "protected": ["tests/unit/"],
        # Which kernels OpenBLAS takes decides the last bits of the reference; a login has none of this environment.
        "env": {name: value for name, value in os.environ.items() if name.startswith("OPENBLAS_")},
    }
    suites = yaml.safe_load((root / "matrix.yaml").read_text())["suites"]
    # Not the large ones: every process of a run looks at each of their configurations.
    own = {name: suites[name] for name in ("proven", "random", "seed")}
    faults = {"t": [1, KILLED, HANGS, ORPHANS, 32], "s_k": [128]}
    matrix = {
        "default_suite": "good",
        "seed": 7,
        "suites": {
            "good": {"axes": {"head_dim": [64], "t": [1, 32], "s_k": [128]}},
            "faulty": {"axes": {"head_dim": [64], **faults}},
            **own,
        },
        "gates": GATES,
        "guard": {"head_dim": 64, "fallback": {"t": 32, "s_k": 256}},
        "limits": LIMITS,
        "hosts": {
            "emulator": {"kind": "emulator"},
            "gpu": {**common, "device": DEVICE},
            "real": {**common, "device": "emulator"},
        },
    }
    (root / "matrix.yaml").write_text(yaml.safe_dump(matrix, sort_keys=False))


@pytest.fixture(scope="session")
def warm(template: Path, server: Server, build_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The host has built the environment and the kernel that most tests run: none of them waits for a compiler. Of the
    hosts of all workers one has built the kernel and compiled the packages, and the others have that of it."""
    built, home = build_cache.with_name("host-builds"), server.home / "fmha"
    build_cache.parent.mkdir(parents=True, exist_ok=True)
    with built.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lent = built.exists()
        if not lent:
            warm_up(template, server, tmp_path_factory.mktemp("warm"))
            lend(home, built, server.uid)
    if lent:
        lend(built, home, server.uid)
        warm_up(template, server, tmp_path_factory.mktemp("warm"))


def warm_up(template: Path, server: Server, folder: Path) -> None:
    with fresh_client(template, server, folder) as first:
        done = first.run("run-matrix", "--host", "gpu")
        assert done.returncode == 0, done.stderr


@pytest.fixture
def client(template: Path, server: Server, warm: None, tmp_path: Path) -> Iterator[Client]:
    """A fresh checkout; afterwards every client is gone and nothing runs on the host."""
    with fresh_client(template, server, tmp_path) as made:
        yield made


@contextlib.contextmanager
def fresh_client(
    template: Path,
    server: Server,
    folder: Path,
    network: tuple[str, ...] = (),
    options: Mapping[str, str] | None = None,
    home: Path | None = None,
) -> Iterator[Client]:
    root = folder / "project"
    shutil.copytree(template, root, symlinks=True)
    config = client_config(server, folder / "ssh", extra=options)
    made = Client(root, config, server, [], network, home or server.home)
    yield made
    made.leave()
    shutil.rmtree(made.home / "fmha" / "runs", ignore_errors=True)
