"""The jobs of `evidence.yml` and `regress.yml` as a pull request meets them: a runner with secrets and a key that can
only run commits, two checkouts, a real sshd for the host, and traps that close where code of the request runs outside
of a sandbox.

The job's shell steps are executed as they stand in the base, in checkouts as its actions make them, by a `.venv` of the
base whose `fmha` is the base's own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fmha.harness.git import git_text
from tests.harness.support import git
from tests.remote.conftest import Client
from tests.remote.server import client_config, key

HOST, SUITE = "b200", "good"
WORKFLOWS = ("evidence", "regress")
MARK = "was-here-"  # what a trap's file is named by, and then who was there
SETUP = "scripts/lent.sh"
_OURS = b"\0heard"
_TOKENS = ("token-of-the-job", "token-of-the-index")
_CODE = """
def _look():
    import os, socket, sys
    sys.stderr.write({mark!r} + {name!r} + ".\\n")
    for folder in {folders!r}:
        try:
            open(os.path.join(folder, {mark!r} + {name!r}), "w").close()
        except OSError:
            pass
    for path in {files!r}:
        try:
            with open(path, "a") as file:
                file.write({mark!r} + {name!r})
        except OSError:
            pass
    for path in {secrets!r}:
        try:
            sys.stderr.write(open(path).read())
        except OSError:
            pass
    try:
        with socket.create_connection(("127.0.0.1", {port}), 5) as line:
            line.sendall({name!r}.encode())
    except OSError:
        pass

_look()
"""


@dataclass
class Traps:
    """What closes on code that is not in a sandbox: folders and files that it writes, a port that it calls. `secrets`
    are files that it reads and prints, with what must be seen nowhere. In a sandbox it says no more than its name."""

    folders: tuple[Path, ...]
    files: tuple[Path, ...]  # that a runner reads: $GITHUB_ENV and the like
    secrets: dict[Path, str]
    listener: socket.socket
    called: list[str] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def code(self, name: str) -> str:
        """Python that goes into every trap, and whose name is `name`."""
        return _CODE.format(
            folders=[str(path) for path in self.folders],
            files=[str(path) for path in self.files],
            secrets=[str(path) for path in self.secrets],
            port=self.port, mark=MARK, name=name,
        )  # fmt: skip

    def program(self, name: str, python: str) -> str:
        """The same as a file to execute, whatever it is given."""
        return f"#!{python}\n{self.code(name)}"

    def sprung(self) -> list[str]:
        """Every trap that has closed, which are then open again."""
        self._hear_all()
        found = self.called[:]
        self.called.clear()
        for folder in self.folders:
            for path in folder.rglob(f"{MARK}*"):
                found.append(str(path))
                path.unlink()
        for path in self.files:
            if path.read_text():
                found.append(f"{path.name} has {path.read_text()!r}")
                path.write_text("")
        return found

    def listen(self) -> None:
        """Until the listener is closed."""
        with contextlib.suppress(OSError):
            while True:
                line, _ = self.listener.accept()
                with line:
                    if (name := line.recv(256)) != _OURS:
                        self.called.append(f"called by {name.decode(errors='replace')}")

    def _hear_all(self) -> None:
        """Who has called is heard a moment later, and in the order of the calls: before one that is ours."""
        with socket.create_connection(("127.0.0.1", self.port)) as line:
            line.sendall(_OURS)
            assert line.recv(1) == b""


@dataclass(frozen=True)
class Seen:
    """What became of a job: the exit code of each shell step, and everything that it said."""

    codes: dict[str, int]
    said: str


@dataclass
class Job:
    """A repository whose main is the base, a fork of it, a workspace, and the environment of the job."""

    client: Client
    fork: Path
    workspace: Path
    home: Path  # the runner's
    environment: dict[str, str]
    traps: Traps
    base: str

    @property
    def evidence(self) -> Path:
        return self.workspace / "evidence"

    def requested(
        self, change: Callable[[Path], object], message: str = "a request", force: tuple[str, ...] = ()
    ) -> str:
        """A commit on the base with a change, in the fork."""
        git(self.fork, "checkout", "-q", "-f", "--detach", self.base)
        git(self.fork, "clean", "-q", "-ffdx")
        change(self.fork)
        git(self.fork, "add", "-A")
        for name in force:
            git(self.fork, "add", "-f", name)
        git(self.fork, "commit", "-q", "--allow-empty", "-m", message)
        return git_text(self.fork, "rev-parse", "HEAD")

    def carried_out(self, sha: str, workflow: str = "evidence") -> Seen:
        """The steps `Matrix` or `Regress`, and `Report`, on that commit of the fork."""
        commit = self.workspace / "commit"
        for path in (commit, self.evidence, self.client.home / "fmha" / "runs"):
            shutil.rmtree(path, ignore_errors=True)
        git(self.workspace, "clone", "-q", "--no-checkout", str(self.client.root), "commit")
        git(commit, "fetch", "-q", str(self.fork), sha)
        git(commit, "checkout", "-q", "--detach", sha)
        codes, said = {}, ""
        for step in self.steps(workflow):
            command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
            folder = self.workspace / step.get("working-directory", ".")
            done = subprocess.run(
                command, cwd=folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, errors="surrogateescape", check=False,
            )  # fmt: skip
            codes[step["name"]] = done.returncode
            said += done.stdout
        return Seen(codes, said)

    def steps(self, workflow: str) -> list[dict[str, Any]]:
        """The shell steps on the self-hosted runner of the base's workflow; `make install` has made what is lent."""
        text = git_text(self.client.root, "show", f"{self.base}:.github/workflows/{workflow}.yml")
        (job,) = (job for job in yaml.load(text, yaml.BaseLoader)["jobs"].values() if "self-hosted" in job["runs-on"])
        return [step for step in job["steps"] if "run" in step and step["name"] != "Install"]

    def summary(self) -> str:
        """The page of the steps of this job, which the next one begins anew."""
        path = Path(self.environment["GITHUB_STEP_SUMMARY"])
        text = path.read_text()
        path.write_text("")
        return text

    def secrets(self) -> tuple[str, ...]:
        """What is to be seen nowhere: parts of the keys and tokens of the runner and the host."""
        return (*self.traps.secrets.values(), *_TOKENS)

    def kept(self) -> str:
        """What of the job leaves the machine but for its output: the artifact, and what the host was told and keeps of
        the run beside the commit itself."""
        runs = self.client.home / "fmha" / "runs"
        files = [*self.evidence.rglob("*"), *runs.glob("*/*"), *runs.glob("*/workers/**/*")]
        plain = [path for path in files if path.is_file() and not path.is_symlink()]
        return "".join(path.read_text(errors="surrogateescape") for path in plain)


@contextlib.contextmanager
def opened(client: Client, repository: Path, folder: Path) -> Iterator[Job]:
    """The job in `folder`, which everybody can enter; the base has run on the host with the owner's own login."""
    root, server = client.root, client.server
    _base(client, repository)
    base = git_text(root, "rev-parse", "HEAD")
    fork, workspace, home, temp = (folder / name for name in ("fork", "workspace", "runner", "temp"))
    for path in (workspace, home, temp, folder / "public", client.home / ".ssh"):
        path.mkdir(exist_ok=True)
    (folder / "public").chmod(0o777)
    git(root, "clone", "-q", str(root), str(fork))
    git(root, "clone", "-q", str(root), str(workspace / "base"))
    _install(workspace / "base")

    config = client_config(
        server, home / ".ssh", extra={"IdentityFile": str(home / ".ssh" / "ci_key"), "IdentityAgent": "none"}
    )
    key(home / ".ssh" / "ci_key")
    dialled = f"touch {home}/{MARK}another-host; exit 1"
    config.write_text(f"{config.read_text()}Host elsewhere\n  ProxyCommand sh -c '{dialled}'\n")
    known = home / ".ssh" / "known_hosts"
    known.write_text(
        f"{known.read_text()}vault.example {_public(server.folder / 'host_key.pub')} known-to-the-runner\n"
    )
    (client.home / ".ssh" / "id").write_text("secret-of-the-host\n")
    (home / ".netrc").write_text("machine example password secret-of-the-runner\n")
    files = {f"GITHUB_{name}": temp / name.lower() for name in ("ENV", "OUTPUT", "PATH")}
    for path in (*files.values(), temp / "summary"):
        path.touch()
    secrets = {
        home / ".ssh" / "ci_key": (home / ".ssh" / "ci_key").read_text().splitlines()[2],
        known: "known-to-the-runner",
        home / ".netrc": "secret-of-the-runner",
        client.home / ".ssh" / "id": "secret-of-the-host",
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GITHUB_"))}
    environment = inherited | {name: str(path) for name, path in files.items()} | {
        "HOME": str(home),
        "CI": "true",
        "GITHUB_ACTIONS": "true",
        "GITHUB_STEP_SUMMARY": str(temp / "summary"),
        "FMHA_SSH_CONFIG": str(config),
        "FMHA_HOST": HOST,
        "FMHA_SUITE": SUITE,
        "FMHA_JUDGE": base,
        "FMHA_BASE": base,
        "ACTIONS_RUNTIME_TOKEN": _TOKENS[0],
        "PIP_EXTRA_INDEX_URL": f"https://somebody:{_TOKENS[1]}@example.invalid/simple",
    }  # fmt: skip
    with _authorized(client, home / ".ssh" / "ci_key.pub"), socket.create_server(("127.0.0.1", 0)) as listener:
        folders = (home, workspace, folder / "public", client.home, temp)
        traps = Traps(folders, tuple(files.values()), secrets, listener)
        thread = threading.Thread(target=traps.listen, daemon=True)
        thread.start()
        try:
            yield Job(client, fork, workspace, home, environment, traps, base)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _base(client: Client, repository: Path) -> None:
    """The repository as it is merged into: with the workflows, a baseline, and a host whose set-up is a script of its
    own."""
    root = client.root
    for workflow in (Path(".github", "workflows", f"{name}.yml") for name in WORKFLOWS):
        (root / workflow).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(repository / workflow, root / workflow)
    path = root / "matrix.yaml"
    matrix = yaml.safe_load(path.read_text())
    real = matrix["hosts"].pop("real")
    (root / SETUP).write_text(Path(real["environment"]["setup"].split()[-1]).read_text())
    setup = {"setup": f"sh {SETUP}", "files": ["constraints.txt", SETUP]}
    matrix["hosts"] = {"emulator": matrix["hosts"]["emulator"], HOST: {**real, "environment": setup}}
    path.write_text(yaml.safe_dump(matrix, sort_keys=False))
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "the base")
    run = ("run-matrix", "--host", HOST, "--suite", SUITE, "-q", "--judge", "own", "--approve-protected")
    for command in (run, ("baseline", "accept", "latest", "--why", "the first", "-q")):
        done = client.run(*command)
        assert done.returncode == 0, done.stderr
    git(root, "add", "-f", "results/baselines")
    git(root, "commit", "-q", "-m", "baseline")
    done = client.run(*run)
    assert done.returncode == 0, done.stderr


def _install(base: Path) -> None:
    """What `make install` makes of a checkout, with packages and the compiled core from where these tests run."""
    home = base / ".venv"
    venv.create(home, with_pip=False, symlinks=True)
    packages = next(path for path in map(Path, sys.path) if (path / "numpy").is_dir())
    site = next(home.glob("lib/python3*/site-packages"))
    (site / "here.pth").write_text(f"{base}\n{packages}\n")
    shutil.copy(next(packages.glob("fmha/emulator/_core*.so")), base / "emulator")
    script = home / "bin" / "fmha"
    script.write_text(f"#!{home / 'bin' / 'python'}\nimport sys\nfrom fmha.harness.cli import main\nsys.exit(main())\n")
    script.chmod(0o755)


def _public(path: Path) -> str:
    return " ".join(path.read_text().split()[:2])


@contextlib.contextmanager
def _authorized(client: Client, public: Path) -> Iterator[None]:
    """The host takes the runner's key for commits alone."""
    line = client.run("hosts", "key", HOST, str(public)).stdout
    assert line.startswith('restrict,command="'), line
    keys = client.server.folder / "authorized_keys"
    before = keys.read_text()
    keys.write_text(before + line)
    try:
        yield
    finally:
        keys.write_text(before)
