"""What an enclosed process can reach, with real processes, by each mechanism that this machine has."""

from __future__ import annotations

import os
import pwd
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fmha.harness import isolate
from fmha.harness.errors import ExitCode, InfrastructureError, UserError
from fmha.harness.isolate import bubblewrap, landlock, system_paths
from fmha.harness.worker.processes.groups import spawn, terminate_group

ROOT = str(Path(__file__).resolve().parents[2])

SECONDS = 60.0
Ran = subprocess.CompletedProcess[str]


def _there(mechanism: str) -> bool:
    return isolate._found(mechanism).mechanism == mechanism


@pytest.fixture(params=isolate.MECHANISMS)
def mechanism(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    if not _there(name):
        # Else a mistake of ours in what encloses would pass for a machine without it.
        assert name != "landlock" or landlock.version() == 0, isolate._found(name).missing
        pytest.skip(f"{isolate._found(name).missing}: {isolate._found(name).advice}")
    monkeypatch.setenv(isolate.VARIABLE, name)
    return name


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with what nobody else should read."""
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(parents=True)
    (folder / ".ssh" / "id_ed25519").write_text("PRIVATE")
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture
def run(mechanism: str, home: Path, scratch: Path) -> Callable[..., Ran]:
    def run(code: str, *, grant: isolate.Grant | None = None, **environment: str) -> Ran:
        command, kept = isolate.enclose(
            [sys.executable, "-c", textwrap.dedent(code)],
            grant or isolate.Grant(write=(scratch,)),
            cwd=scratch,
            environment=os.environ | environment,
        )
        return subprocess.run(
            command, cwd=scratch, env=kept, capture_output=True, text=True, timeout=SECONDS, check=False
        )

    return run


def test_a_key_in_the_home_is_not_read(run: Callable[..., Ran], home: Path) -> None:
    ran = run(f"print(open({str(home / '.ssh' / 'id_ed25519')!r}).read())")
    assert ran.returncode != 0
    assert "PRIVATE" not in ran.stdout + ran.stderr
    assert run("import os; print(os.listdir(os.path.expanduser('~')))").stdout == "[]\n", "its home is its scratch"


@pytest.mark.parametrize("place", [".git", "elsewhere/git"])
def test_gits_own_folder_of_a_checkout_is_not_read(
    run: Callable[..., Ran], tmp_path: Path, scratch: Path, place: str
) -> None:
    """Its configuration has a token where a CI system, or whoever cloned it, has written one there."""
    tree = tmp_path / "tree"
    (tree / place).mkdir(parents=True)
    (tree / place / "config").write_text("PRIVATE")
    (tree / "include").mkdir()
    (tree / "include" / "a.h").write_text("PUBLIC\n")
    (tree / "b.h").symlink_to("include/a.h")
    if place != ".git":
        (tree / ".git").symlink_to(place)
    names = [str(tree / name) for name in ("include/a.h", "b.h", ".git/config")]
    grant = isolate.Grant(read=(tree,), write=(scratch,))
    ran = run(
        f"import os\nprint(len(os.listdir({str(tree)!r})))\nfor n in {names!r}: print(open(n).read())", grant=grant
    )
    assert ran.stdout.split() == [str(len(os.listdir(tree))), "PUBLIC", "PUBLIC"], ran.stderr
    assert "PRIVATE" not in ran.stderr


def test_repositories_further_down_are_not_read(run: Callable[..., Ran], tmp_path: Path, scratch: Path) -> None:
    """A clone in a folder that git ignores, one whose .git is a link, a bare one: each has a URL with a token."""
    tree = tmp_path / "tree"
    places = ("deps/a/.git", "deps/b/.real", "deps/deep/er/mirror.git")
    for place in places:
        for name in ("objects", "refs"):
            (tree / place / name).mkdir(parents=True)
        (tree / place / "HEAD").write_text("ref: refs/heads/main\n")
        (tree / place / "config").write_text("PRIVATE")
        (tree / place).parent.joinpath("a.h").write_text("PUBLIC\n")
    (tree / "deps/b/.git").symlink_to(".real")
    (tree / "b.h").write_text("PUBLIC\n")
    headers = [str(tree / "b.h"), *(str((tree / place).parent / "a.h") for place in places)]
    configurations = [*(str(tree / place / "config") for place in places), str(tree / "deps/b/.git/config")]
    code = f"""
    for name in {headers!r}:
        print(open(name).read().strip())
    for name in {configurations!r}:
        try:
            print(open(name).read())
        except OSError:
            print("refused")
    """
    ran = run(code, grant=isolate.Grant(read=(tree,), write=(scratch,)))
    assert ran.stdout.split() == ["PUBLIC"] * 4 + ["refused"] * 4, ran.stderr


def test_more_repositories_than_can_be_hidden_are_an_error(tmp_path: Path, scratch: Path) -> None:
    for number in range(isolate.MOST_HIDDEN + 1):
        (tmp_path / "tree" / str(number) / ".git").mkdir(parents=True)
    grant = isolate.Grant(read=(tmp_path / "tree",), write=(scratch,))
    # Where fmha itself runs from a clone, that is one more.
    with pytest.raises(isolate.IsolationError, match=r"20[12] git repositories below what is to be granted"):
        isolate.enclose(["true"], grant, cwd=scratch, environment={})


def test_of_an_interpreter_in_the_home_is_read_what_it_is_made_of(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`configure --prefix ~/.local` puts it beside keyrings."""
    local = home / ".local"
    for name in ("bin", "lib", "share/keyrings"):
        (local / name).mkdir(parents=True)
    monkeypatch.setattr(sys, "base_prefix", str(local))
    found = system_paths.folders([])
    assert {str(local / "bin"), str(local / "lib")} <= set(found)
    assert not [path for path in found if (local / "share").is_relative_to(path)]


@pytest.mark.skipif(not os.access("/opt", os.W_OK), reason="writes to /opt, where CI runners are installed")
def test_of_opt_is_read_what_programs_are_found_in(run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    """A self-hosted runner has its key in /opt/actions-runner."""
    with tempfile.TemporaryDirectory(prefix="fmha-runner-", dir="/opt") as runner:
        kit = Path(runner, "kit")
        (kit / "bin").mkdir(parents=True)
        (kit / "include.h").write_text("PUBLIC")
        key = Path(runner, ".credentials")
        key.write_text("PRIVATE")
        monkeypatch.setenv("PATH", f"{kit}/bin{os.pathsep}{os.environ['PATH']}")
        ran = run(f"print(open({str(kit / 'include.h')!r}).read()); open({str(key)!r}).read()")
    assert ran.returncode != 0
    assert ran.stdout == "PUBLIC\n"
    assert "PRIVATE" not in ran.stderr


@pytest.mark.parametrize("name", ["{home}/x", "{folder}/x", "/var/tmp/fmha-x", "/usr/lib/fmha-x", "{here}/fmha-x"])
def test_nothing_is_written_outside_of_the_scratch(
    run: Callable[..., Ran], home: Path, tmp_path: Path, name: str
) -> None:
    path = Path(name.format(home=home, folder=tmp_path, here=Path(isolate.__file__).parent))
    run(f"open({str(path)!r}, 'w').write('x')")
    assert not path.exists()  # where /tmp is its own it may have written there


def test_what_it_writes_to_shared_places_is_its_own(run: Callable[..., Ran], mechanism: str) -> None:
    names = [f"/tmp/fmha-{mechanism}", f"/dev/shm/fmha-{mechanism}"]
    run("\n".join(f"try: open({name!r}, 'w').write('x')\nexcept OSError: pass" for name in names))
    assert [name for name in names if Path(name).exists()] == []


def test_the_scratch_is_written_and_a_link_is_no_way_out(run: Callable[..., Ran], home: Path, scratch: Path) -> None:
    assert run("open('fine', 'w').write('x')").returncode == 0
    assert (scratch / "fine").read_text() == "x"
    (scratch / "out").symlink_to(home / ".ssh")
    ran = run("open('out/id_ed25519').read()")
    assert ran.returncode != 0
    assert run("import os; os.link('out/id_ed25519', 'mine')").returncode != 0
    assert run("open('out/new', 'w')").returncode != 0
    assert not (home / ".ssh" / "new").exists()


def test_nobody_is_reached_over_a_network(run: Callable[..., Ran]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ran = run(f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5)")
        assert "Operation not permitted" in ran.stderr
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_bubblewraps_namespaces_are_its_own(run: Callable[..., Ran], mechanism: str) -> None:
    """The filter of system calls would hide that the network is everybody's; names of sockets would not."""
    if mechanism != "bubblewrap":
        pytest.skip("Landlock makes none")
    kinds = ("net", "ipc", "pid", "mnt", "uts")
    inside = run(f"import os; print(*(os.readlink('/proc/self/ns/' + kind) for kind in {kinds}))").stdout.split()
    assert len(inside) == len(kinds)
    assert not set(inside) & {os.readlink(f"/proc/self/ns/{kind}") for kind in kinds}


def test_an_agents_socket_is_not_reached(run: Callable[..., Ran], scratch: Path) -> None:
    """Even one that lies where it may write."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(scratch / "agent"))
        server.listen()
        ran = run("import socket; s = socket.socket(socket.AF_UNIX); s.connect('agent')")
        assert "Operation not permitted" in ran.stderr
    assert run("import socket; a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))").stdout == "b'x'\n"


def test_a_gpus_driver_gets_a_socket_that_is_connected_to_nobody(run: Callable[..., Ran], scratch: Path) -> None:
    """CUDA will not start without one. What it cannot have is an agent's, or a network's."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(scratch / "agent"))
        server.listen()
        grant = isolate.Grant(write=(scratch,), gpu=True)
        ran = run("import socket; s = socket.socket(socket.AF_UNIX); print('made'); s.connect('agent')", grant=grant)
        assert ran.stdout == "made\n", ran.stderr
        assert "Operation not permitted" in ran.stderr
        assert "Operation not permitted" in run("import socket; socket.socket(socket.AF_INET)", grant=grant).stderr


def test_its_parent_is_not_touched(run: Callable[..., Ran]) -> None:
    me = os.getpid()
    for code in (
        f"import os; os.kill({me}, 0)",
        f"open('/proc/{me}/mem', 'rb')",
        f"open('/proc/{me}/environ', 'rb')",
        f"open('/proc/{me}/root/etc/hostname', 'rb')",
        f"import ctypes; c = ctypes.CDLL(None); assert c.ptrace(16, {me}, 0, 0) == 0",
    ):
        assert run(code).returncode != 0, code


@pytest.mark.parametrize(
    "call",
    [
        "os.unshare(os.CLONE_NEWUSER)" if hasattr(os, "unshare") else "c.unshare(0x10000000) and 1 / 0",
        "c.mount(b'none', b'/tmp', b'tmpfs', 0, None) and 1 / 0",
        "c.chroot(b'/') and 1 / 0",
        "c.syscall(425, 1, None) < 0 and 1 / 0",
        "c.syscall(250, 0, 0) < 0 and 1 / 0",
        "fcntl.ioctl(0, 0x5412, b'x')",
    ],
)
def test_system_calls_that_nothing_here_needs_are_refused(run: Callable[..., Ran], call: str) -> None:
    assert run(f"import ctypes, fcntl, os; c = ctypes.CDLL(None); {call}").returncode != 0


@pytest.mark.parametrize(
    "name", ["/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/self/oom_score_adj"]
)
def test_settings_of_the_kernel_are_not_opened_to_write(run: Callable[..., Ran], name: str) -> None:
    """Root owns them, and an owner needs no capability. Opening alone changes nothing where this fails."""
    ran = run(f"import os; os.open({name!r}, os.O_WRONLY)")
    assert ran.returncode != 0
    assert "Read-only file system" in ran.stderr or "Permission denied" in ran.stderr


def test_with_a_gpu_threads_have_names_and_the_kernel_its_settings(run: Callable[..., Ran], scratch: Path) -> None:
    """CUDA's driver names its threads, and does not start where it may not."""
    ran = run(
        """
        import threading
        for name in ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/irq/default_smp_affinity"):
            try:
                open(name, "r+")
                print("opened", name)
            except OSError:
                pass
        name = f"/proc/self/task/{threading.get_native_id()}/comm"
        with open(name, "w") as file:
            file.write("named")
        print(open(name).read())
        """,
        grant=isolate.Grant(write=(scratch,), gpu=True),
    )
    assert (ran.returncode, ran.stdout.split()) == (0, ["named"]), ran.stdout + ran.stderr


@pytest.mark.parametrize("root", [False, True])
def test_a_worker_of_an_enclosed_harness_names_its_threads(
    run: Callable[..., Ran], mechanism: str, scratch: Path, monkeypatch: pytest.MonkeyPatch, root: bool
) -> None:
    """It is another process than the one that was enclosed. Landlock gives root no /proc, which has the kernel's
    settings, so that there CUDA does not start. Memory of who is outside is read and written by nobody."""
    monkeypatch.setattr("fmha.harness.isolate.system_paths.os.geteuid", lambda: 0 if root else 65534)
    me = os.getpid()
    named = (
        "import threading; open(f'/proc/self/task/{threading.get_native_id()}/comm', 'w').write('x'); print('named')"
    )
    ran = run(
        f"""
        import subprocess, sys
        subprocess.run([sys.executable, "-c", {named!r}], stderr=subprocess.DEVNULL)
        for name in ("mem", "environ", "fd/0", "root/etc/hostname"):
            try:
                open("/proc/{me}/" + name, "r+b" if name == "mem" else "rb")
                print("opened", name)
            except OSError:
                pass
        """,
        grant=isolate.Grant(write=(scratch,), gpu=True, groups=True),
    )
    assert ran.stdout.split() == ([] if root and mechanism == "landlock" else ["named"]), ran.stdout + ran.stderr


def test_secrets_of_the_environment_stay_outside(run: Callable[..., Ran]) -> None:
    given = {"SSH_AUTH_SOCK": "/x", "GITHUB_TOKEN": "t", "FMHA_SECRET": "s", "CUDA_CACHE_PATH": "/c"}
    ran = run("import os; print(*sorted(os.environ))", **given)
    assert "CUDA_CACHE_PATH" in ran.stdout
    assert not {"SSH_AUTH_SOCK", "GITHUB_TOKEN", "FMHA_SECRET"} & set(ran.stdout.split())


def test_descriptors_of_its_parent_are_closed(mechanism: str, home: Path, scratch: Path) -> None:
    code = "import os, sys; print(os.read(int(sys.argv[1]), 9))"
    with open(home / ".ssh" / "id_ed25519", "rb") as key:
        os.set_inheritable(key.fileno(), True)
        command, kept = isolate.enclose(
            [sys.executable, "-c", code, str(key.fileno())],
            isolate.Grant(write=(scratch,)),
            cwd=scratch,
            environment=os.environ,
        )
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        ran = subprocess.run(command, cwd=scratch, env=kept, close_fds=False, timeout=SECONDS, check=False, **pipes)
    assert "PRIVATE" not in ran.stdout
    assert "Bad file descriptor" in ran.stderr


def test_memory_files_and_time_are_bounded(run: Callable[..., Ran], scratch: Path) -> None:
    def bounded(**limits: int) -> isolate.Grant:
        return isolate.Grant(write=(scratch,), **limits)

    assert "MemoryError" in run("bytearray(1 << 31)", grant=bounded(memory_bytes=1 << 30)).stderr
    run("open('big', 'wb').write(bytes(1 << 21))", grant=bounded(file_bytes=1 << 20))
    assert (scratch / "big").stat().st_size <= 1 << 20
    assert run("while True: pass", grant=bounded(cpu_seconds=1)).returncode != 0
    many = "import os; [os.open('/dev/null', 0) for _ in range(200)]"
    assert "Too many open files" in run(many, grant=bounded(open_files=64)).stderr


def _gone(path: Path) -> bool:
    """Whether the processes that hold a lock of `path` have ended."""
    with path.open("rb") as file:
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


HOLD = """
import fcntl, os, sys, time
file = open('lock', 'w')
fcntl.flock(file, fcntl.LOCK_EX)
if os.fork() == 0:
    os.setsid()
    os.write(1, b'held\\n')
time.sleep(600)
"""


@pytest.fixture
def held(mechanism: str, home: Path, scratch: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds a lock, with a child that left its session."""
    command, kept = isolate.enclose(
        [sys.executable, "-c", HOLD], isolate.Grant(write=(scratch,)), cwd=scratch, environment=os.environ
    )
    process = spawn(command, cwd=scratch, env=kept, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    yield process
    process.stdout.close()
    terminate_group(process)


def _eventually(what: Callable[[], bool]) -> bool:
    end = time.monotonic() + SECONDS
    while not what() and time.monotonic() < end:
        os.sched_yield()
    return what()


def test_all_of_it_ends_with_its_group(held: subprocess.Popen[bytes], mechanism: str, scratch: Path) -> None:
    """bubblewrap has a tree of processes of its own. Without one, nobody leaves the group."""
    assert not _gone(scratch / "lock")
    os.killpg(held.pid, signal.SIGKILL)
    held.wait(SECONDS)
    assert _eventually(lambda: _gone(scratch / "lock"))


def test_nvcc_compiles_in_it(mechanism: str, home: Path, scratch: Path, repository: Path) -> None:
    from fmha.harness.worker.compilers.nvcc import NvccError, find_nvcc

    try:
        nvcc = find_nvcc()
    except NvccError as error:
        pytest.skip(str(error))
    (scratch / "a.cu").write_text(f'#include "{home}/.ssh/id_ed25519"\n')
    (scratch / "b.cu").write_text('extern "C" __global__ void f() {}\n')
    for name, works in (("a.cu", False), ("b.cu", True)):
        command, kept = isolate.enclose(
            [str(nvcc.path), "-ptx", "-arch=sm_90a", "-o", str(scratch / "out.ptx"), str(scratch / name)],
            isolate.Grant(write=(scratch,)),
            cwd=scratch,
            environment=os.environ,
        )
        ran = subprocess.run(command, cwd=scratch, env=kept, capture_output=True, text=True, check=False)
        assert (ran.returncode == 0) == works, ran.stderr
        assert "PRIVATE" not in ran.stdout + ran.stderr


def test_within_it_another_is_enclosed_as_well(run: Callable[..., Ran], scratch: Path) -> None:
    """Without namespaces there is Landlock still, which adds up."""
    inner = scratch / "inner"
    inner.mkdir()
    ran = run(
        f"""
        import os, subprocess, sys
        from pathlib import Path
        from fmha.harness import isolate
        os.environ["FMHA_ISOLATION"] = "auto"
        print(isolate.isolation().mechanism)
        grant = isolate.Grant(write=(Path({str(inner)!r}),))
        command = [sys.executable, "-c", "open('../x', 'w')"]
        command, kept = isolate.enclose(command, grant, cwd=Path({str(inner)!r}), environment=os.environ)
        print(subprocess.run(command, cwd={str(inner)!r}, env=kept, stderr=subprocess.DEVNULL).returncode != 0)
        """
    )
    assert ran.stdout.split() == ["landlock", "True"], ran.stderr


def test_a_folder_that_is_not_there_is_said(mechanism: str, tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="not there"):
        isolate.enclose(["true"], isolate.Grant(read=(tmp_path / "x",)), cwd=tmp_path, environment={})


def test_where_nothing_is_enclosed_the_room_to_write_is_handed_on(tmp_path: Path) -> None:
    """As within a sandbox, whose /tmp need not be writable: a compiler takes what TMPDIR says."""
    room = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    given = {**room, "SSH_AUTH_SOCK": "/tmp/agent"}
    _, kept = isolate.enclose(["true"], isolate.Grant(), cwd=tmp_path, environment=given, policy="off")
    assert kept == room


def test_a_policy_that_is_none_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(isolate.VARIABLE, "perhaps")
    with pytest.raises(UserError, match="'perhaps' is none of auto, require, off"):
        isolate.isolation()


# As Ubuntu 24.04's AppArmor has it, and as an old kernel: clone and unshare say EPERM for namespaces, Landlock ENOSYS.
REFUSE = """
import ctypes, os, struct, sys
sys.path.insert(0, {folder!r})
import landlock
numbers = {{"x86_64": (272, 56), "aarch64": (97, 220)}}[os.uname().machine]
words, eperm = [landlock._word(0x20, 0)], landlock._word(6, 0x50001)
if "namespaces" in sys.argv[1]:
    words += [landlock._word(0x15, numbers[0], 0, 1), eperm]
    words += [landlock._word(0x15, numbers[1], 0, 4), landlock._word(0x20, 16), landlock._word(0x45, 0x7E020000, 0, 1)]
    words += [eperm, landlock._word(6, 0x7FFF0000)]
if "landlock" in sys.argv[1]:
    words += [landlock._word(0x15, 444, 0, 1), landlock._word(6, 0x50026)]
landlock._checked(ctypes.CDLL(None).prctl(38, 1, 0, 0, 0))
landlock._filter(b"".join([*words, landlock._word(6, 0x7FFF0000)]))
os.execv(sys.executable, [sys.executable, "-c", sys.argv[2]])
"""


def _without(what: str, code: str, policy: str) -> Ran:
    script = REFUSE.format(folder=str(Path(isolate.__file__).parent))
    environment = os.environ | {isolate.VARIABLE: policy}
    command = [sys.executable, "-c", script, what, code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)


GIVEN_BY = re.compile(r"sysctl |--security-opt seccomp=unconfined|apt install bubblewrap")
SAY = "from fmha.harness import isolate; found = isolate.isolation(); print(found.words, '|', found.advice)"


def test_without_namespaces_there_is_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    if not _there("landlock"):
        pytest.skip("this kernel has no Landlock")
    said = _without("namespaces", SAY, "require")
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith("landlock | ")
    assert GIVEN_BY.search(said.stdout)


def test_without_either_it_is_said_or_refused() -> None:
    said = _without("namespaces landlock", SAY, "auto")
    assert said.stdout.startswith("not isolated: ")
    assert "this kernel has no Landlock" in said.stdout
    refused = _without("namespaces landlock", SAY, "require")
    assert refused.returncode != 0
    assert "IsolationError: not isolated: " in refused.stderr


COMMAND = "import sys; sys.argv = ['fmha', *{words!r}]; from fmha.harness.cli import main; main()"


def test_a_run_that_requires_it_ends_in_a_line_before_anything_is_done() -> None:
    words = ["run-matrix", "--quiet", "--filter", "hd=64,t=1,sk=128", "--isolation", "require"]
    refused = _without("namespaces landlock", COMMAND.format(words=words), "")
    assert refused.returncode == ExitCode.INFRASTRUCTURE
    assert re.match(r"fmha: not isolated: .* and this kernel has no Landlock; ", refused.stderr), refused.stderr
    assert "Traceback" not in refused.stderr
    assert "worker" not in refused.stderr


def test_in_a_container_it_is_said_what_bubblewrap_lacks() -> None:
    """Where /proc is masked, as Docker does it, there are namespaces and still no /proc for one of them."""
    if not _there("bubblewrap"):
        pytest.skip("bubblewrap makes no sandbox here")
    container = bubblewrap.arguments(system_paths.folders([Path(ROOT)]), [], False, "/")
    command = [*container, sys.executable, "-c", SAY]
    said = subprocess.run(command, env=os.environ | {isolate.VARIABLE: "auto"}, capture_output=True, text=True)
    assert "--security-opt systempaths=unconfined" in said.stdout, said.stderr
    assert "sysctl" not in said.stdout


@pytest.mark.parametrize("what", ["namespaces landlock", "namespaces"])
def test_doctor_names_the_command_that_gives_more(what: str) -> None:
    said = _without(what, COMMAND.format(words=["doctor"]), "").stdout
    found = said[said.index("isolation ") :]
    assert ("not isolated: " in found) == ("landlock" in what), said
    assert GIVEN_BY.search(found), said


def test_the_home_is_not_granted_whole(mechanism: str, tmp_path: Path) -> None:
    home = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    for folder in (home, home.parent):
        with pytest.raises(isolate.IsolationError, match="the home would be granted whole"):
            isolate.enclose(["true"], isolate.Grant(read=(folder,)), cwd=tmp_path, environment={})


def test_packages_of_an_account_are_there(mechanism: str, home: Path, scratch: Path) -> None:
    """Those of `pip install --user`, by an interpreter without a virtual environment."""
    interpreter = str(getattr(sys, "_base_executable", ""))
    asked = "import site; print(site.getusersitepackages() if site.ENABLE_USER_SITE else '')"
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": ROOT, isolate.VARIABLE: mechanism}
    said = subprocess.run(
        [
            interpreter,
            "-c",
            f"import os; os.makedirs(__import__('site').getusersitepackages(), exist_ok=True)\n{asked}",
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if not said.stdout.strip():
        pytest.skip("the interpreter has no folder of an account's packages")
    (Path(said.stdout.strip()) / "only_here.py").write_text("VALUE = 'found'\n")
    code = f"""
import os, subprocess, sys
from pathlib import Path
from fmha.harness import isolate
scratch = Path({str(scratch)!r})
command = [sys.executable, "-c", "import only_here; print(only_here.VALUE)"]
command, kept = isolate.enclose(command, isolate.Grant(write=(scratch,)), cwd=scratch, environment=os.environ)
print(isolate.isolation().mechanism, subprocess.run(command, cwd=scratch, env=kept, capture_output=True, text=True))
"""
    ran = subprocess.run([interpreter, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert mechanism in ran.stdout, ran.stderr
    assert "found" in ran.stdout, ran.stdout


def test_what_lies_beside_gits_folder_is_granted_one_by_one(tmp_path: Path) -> None:
    """By Landlock, which knows no exceptions: whole, beside the hidden folder, and listed alone."""
    for name in ("repository/.git", "repository/kernel", "other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "repository" / "link").symlink_to(tmp_path / "other")
    granted = [str(tmp_path / "repository"), str(tmp_path / "other")]
    hidden = [str(tmp_path / "repository" / ".git")]
    assert landlock.without(granted, hidden) == (granted[1:], [f"{granted[0]}/kernel"], granted[:1])
    assert landlock.without(granted, []) == (granted, [], [])
