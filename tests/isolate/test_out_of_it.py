"""Ways out of a sandbox that need no file to be opened: modes, times, limits, sockets, shared memory, capabilities.

What is tried is done to a file and a process of the test's own, or with what changes nothing where it succeeds.
"""

from __future__ import annotations

import ctypes
import os
import resource
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fmha.harness import isolate
from fmha.harness.isolate import landlock

SECONDS = 60.0
Ran = subprocess.CompletedProcess[str]
BEGIN = """
import ctypes, fcntl, os, resource, signal, socket, stat, subprocess, sys
c = ctypes.CDLL(None, use_errno=True)
def call(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
"""


@pytest.fixture(params=isolate.MECHANISMS)
def mechanism(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    found = isolate._found(name)
    if found.mechanism != name:
        pytest.skip(f"{found.missing}: {found.advice}")
    monkeypatch.setenv(isolate.VARIABLE, name)
    return name


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What it may read and not write."""
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "file").write_text("source")
    return folder


@pytest.fixture
def run(mechanism: str, tmp_path: Path, tree: Path) -> Callable[[str], Ran]:
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    def run(code: str) -> Ran:
        command = [sys.executable, "-c", BEGIN + textwrap.dedent(code)]
        grant = isolate.Grant(read=(tree,), write=(scratch,))
        inside, kept = isolate.enclose(command, grant, cwd=scratch, environment=os.environ)
        return subprocess.run(
            inside, cwd=scratch, env=kept, capture_output=True, text=True, timeout=SECONDS, check=False
        )

    return run


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the same account outside."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize(
    "code",
    [
        "os.chmod({file!r}, 0o777)",
        "os.fchmod(os.open({file!r}, os.O_RDONLY), 0o777)",
        "call(c.syscall(452, -100, {file!r}.encode(), 0o777, 0))",
        "os.utime({file!r}, (1, 1))",
        "os.setxattr({file!r}, 'user.x', b'1')",
        "os.truncate({file!r}, 0)",
        "os.open({file!r}, os.O_RDONLY | os.O_TRUNC)",
        "os.link({file!r}, 'mine'); os.chmod('mine', 0o777)",
    ],
)
def test_what_it_may_read_keeps_mode_times_and_content(run: Callable[[str], Ran], tree: Path, code: str) -> None:
    file = tree / "file"
    before = file.stat()
    run(code.format(file=str(file)))
    after = file.stat()
    assert (after.st_mode, after.st_mtime_ns, after.st_size) == (before.st_mode, before.st_mtime_ns, before.st_size)
    assert os.listxattr(file) == []


@pytest.mark.parametrize(
    "code",
    [
        "resource.prlimit({pid}, resource.RLIMIT_NOFILE, (1, 1))",
        "os.setpriority(os.PRIO_PROCESS, {pid}, 19)",
        "os.sched_setaffinity({pid}, [min(os.sched_getaffinity(0))])",
        "os.sched_setscheduler({pid}, os.SCHED_BATCH, os.sched_param(0))",
        "os.kill({pid}, signal.SIGKILL)",
        "signal.pidfd_send_signal(os.pidfd_open({pid}), signal.SIGKILL)",
    ],
)
def test_a_process_outside_keeps_limits_and_place(
    run: Callable[[str], Ran], mechanism: str, other: subprocess.Popen[bytes], code: str
) -> None:
    if "SIGKILL" in code and mechanism == "landlock" and landlock.version() < landlock._SCOPES[1]:
        pytest.skip("Landlock of this kernel knows no signals")

    def state() -> tuple[object, ...]:
        pid = other.pid
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        kind = os.sched_getscheduler(pid)
        return limits, os.getpriority(os.PRIO_PROCESS, pid), os.sched_getaffinity(pid), kind, other.poll()

    before = state()
    run(code.format(pid=other.pid))
    assert state() == before


def test_its_own_limits_and_place_are_its_own(run: Callable[[str], Ran]) -> None:
    ran = run(
        """
        resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
        os.setpriority(os.PRIO_PROCESS, 0, 19)
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
        print(resource.getrlimit(resource.RLIMIT_NOFILE), os.getpriority(os.PRIO_PROCESS, 0))
        """
    )
    assert ran.stdout == "(32, 32) 19\n", ran.stderr


def test_an_account_as_a_whole_is_not_given_a_priority(run: Callable[[str], Ran]) -> None:
    """Asked of an account without a process: the answer tells whether it was looked for."""
    ran = run("os.setpriority(os.PRIO_USER, 61234, 0)")
    assert "ProcessLookupError" in ran.stderr or "PermissionError" in ran.stderr
    if os.environ[isolate.VARIABLE] == "landlock":
        assert "PermissionError" in ran.stderr


@pytest.mark.parametrize("how", ["a.sendto(b'x', {to!r})", "a.sendmsg([b'x'], [], 0, {to!r})", "a.connect({to!r})"])
def test_a_pair_of_sockets_reaches_nobody_else(run: Callable[[str], Ran], tmp_path: Path, how: str) -> None:
    """Even one that lies where it may write."""
    path = tmp_path / "scratch" / "there"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(path))
        server.settimeout(0)
        for kind in ("SOCK_DGRAM", "SOCK_STREAM", "SOCK_SEQPACKET"):
            code = f"a, b = socket.socketpair(socket.AF_UNIX, socket.{kind}); {how.format(to=str(path))}; a.send(b'x')"
            run(code)
            with pytest.raises(BlockingIOError):
                server.recv(9)


def test_shared_memory_of_the_account_is_not_reached(run: Callable[[str], Ran]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    segment = libc.shmget(0, 4096, 0o1600)
    assert segment >= 0
    try:
        assert run(f"call(c.shmctl({segment}, 2, ctypes.create_string_buffer(256)))").returncode != 0  # IPC_STAT
        assert run(f"c.shmat.restype = ctypes.c_ssize_t; call(c.shmat({segment}, None, 0))").returncode != 0
    finally:
        libc.shmctl(segment, 0, None)


def test_nobody_has_a_capability_in_it(run: Callable[[str], Ran]) -> None:
    ran = run(
        "print(*(int(line.split()[1], 16) for line in open('/proc/self/status') if line[:6] in ('CapPrm', 'CapEff')))"
    )
    assert ran.stdout == "0 0\n", ran.stderr
    if os.getuid() == 0:
        assert run("os.setuid(65534)").returncode != 0


@pytest.mark.parametrize("kind", ["S_IFBLK", "S_IFCHR"])
def test_no_device_is_made(run: Callable[[str], Ran], kind: str) -> None:
    assert run(f"os.mknod('d', 0o600 | stat.{kind}, os.makedev(1, 3))").returncode != 0


def test_the_machines_name_is_not_set(run: Callable[[str], Ran]) -> None:
    """To what it is: nothing changes where this is allowed."""
    ran = run("n = socket.gethostname().encode(); call(c.sethostname(n, len(n)))")
    assert "PermissionError" in ran.stderr


# Landlock of an older kernel: what is not handled is what that did not know.
OLDER = """
import os, sys
sys.path.insert(0, {folder!r})
import landlock
landlock.version = lambda: {version}
how = {{"limits": {{}}, "read": {read!r}, "list": [], "write": [{scratch!r}], "devices": []}}
landlock.main(how, [sys.executable, "-c", {code!r}])
"""


@pytest.mark.parametrize("version", range(1, 8))
@pytest.mark.parametrize("code", ["os.truncate({file!r}, 0)", "os.open({file!r}, os.O_RDONLY | os.O_TRUNC)"])
def test_by_an_older_kernels_landlock_nothing_is_cut_off(tmp_path: Path, tree: Path, version: int, code: str) -> None:
    if landlock.version() < version:
        pytest.skip("this kernel's Landlock is older")
    file, scratch = tree / "file", tmp_path / "scratch"
    scratch.mkdir()
    read = [*isolate.system_paths.system(False), *isolate.system_paths.folders([tree])]

    def older(text: str) -> Ran:
        folder = str(Path(landlock.__file__).parent)
        script = OLDER.format(folder=folder, version=version, read=read, scratch=str(scratch), code=BEGIN + text)
        command = [sys.executable, "-c", script]
        return subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=SECONDS, check=False)

    refused = older(code.format(file=str(file)))
    assert "PermissionError" in refused.stderr
    assert file.read_text() == "source"
    fine = older("open('x', 'w').write('one'); open('x', 'w').write('2'); print(open('x').read())")
    assert fine.stdout == "2\n", fine.stderr


def test_it_ends_with_the_process_that_started_it(mechanism: str, tmp_path: Path) -> None:
    """Also where it asks that it should not."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    code = BEGIN + "c.prctl(1, 0); signal.alarm(90); os.write(1, b'up'); signal.pause()"
    starter = f"""
        import os, subprocess, sys
        from pathlib import Path
        from fmha.harness import isolate
        where = Path({str(scratch)!r})
        grant = isolate.Grant(write=(where,))
        command, kept = isolate.enclose([sys.executable, "-c", {code!r}], grant, cwd=where, environment=os.environ)
        subprocess.Popen(command, cwd=where, env=kept)
        os.read(0, 1)
        os.kill(os.getpid(), 9)
        """
    command = [sys.executable, "-c", textwrap.dedent(starter)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.read(2) == b"up"
        # Its end of the pipe is closed once it has ended, sooner than by the alarm of its own.
        assert process.communicate(b"x", timeout=SECONDS) == (b"", None)


def test_attributes_and_leases_of_files_that_are_read_are_not_taken(run: Callable[[str], Ran], tree: Path) -> None:
    """An ioctl changes attributes by a descriptor that is open to read, and a lease holds up who writes outside."""
    before = subprocess.run(["lsattr", str(tree / "file")], capture_output=True, text=True).stdout
    name = str(tree / "file")
    flags = f"f = open({name!r}); fcntl.ioctl(f, 0x40086602, (0xc0).to_bytes(8, 'little'))"
    for code in (
        flags,
        f"f = open({name!r}); fcntl.fcntl(f, 1024, 0)",
        f"f = os.open({str(tree)!r}, 0); fcntl.fcntl(f, 1026, 2)",
    ):
        ran = run(code)
        assert ran.returncode != 0, code
        assert "Operation not permitted" in ran.stderr, ran.stderr
    assert subprocess.run(["lsattr", name], capture_output=True, text=True).stdout == before
