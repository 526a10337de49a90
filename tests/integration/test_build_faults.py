"""Compilers that fail and hang, caches that cannot be written: real processes, a real small disk."""

import contextlib
import os
import resource
import signal
import subprocess
import sys

import psutil
import pytest

from fmha.harness.contract.protocol import Configuration, Job
from fmha.harness.kernel_side.variants import VARIANTS
from fmha.harness.worker.compilers import nvcc
from fmha.harness.worker.compilers.build_kernels import build_variants
from fmha.harness.worker.compilers.cache import CacheError
from fmha.harness.worker.compilers.nvcc import NvccError
from fmha.harness.worker.pool.supervise import WorkerError, run_worker
from tests.integration.processes import alive, eventually, logged_pids

VARIANT = VARIANTS[0]
PLENTY = 120.0

ANSWERS = """#!/bin/bash
if [ "$1" = --dryrun ]; then exit 0; fi
if [ "$1" = --version ]; then echo 'Cuda compilation tools, release 13.0, V13.0.88'; exit 0; fi
"""
# nvcc, a child in its group and one that has left it, all of them deaf to SIGTERM, and a file in the scratch folder.
HANGS = """trap '' TERM
echo half >"$TMPDIR/half"
sleep 600 & echo "pid $!" >>"$PIDS"
python3 -c 'import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.setpgid(0, 0)
print("pid", os.getpid(), flush=True)
time.sleep(600)' >>"$PIDS" &
echo "pid $$" >>"$PIDS"
exec sleep 600
"""
DRIVER = """
import pathlib, sys
from fmha.harness.worker.compilers.build_kernels import build_variants
from fmha.harness.kernel_side.variants import VARIANTS
cache = pathlib.Path(sys.argv[1])
result, = build_variants(pathlib.Path.cwd(), VARIANTS[:1], cache, 600, 1, lambda line: None)
print(result.error)
"""


@pytest.fixture
def fake_nvcc(tmp_path, monkeypatch):
    """Installs a shell script as the compiler. It may append `pid N` lines to the file `pids`, where it is
    not enclosed: in a sandbox it has neither that file nor these numbers."""

    def install(body):
        path = tmp_path / "nvcc"
        body = body.replace("$PIDS", str(tmp_path / "pids"))
        if str(tmp_path) in body:
            monkeypatch.setenv("FMHA_ISOLATION", "off")
        path.write_text(body if body.startswith("#!") else ANSWERS + body)
        path.chmod(0o755)
        monkeypatch.setenv("FMHA_NVCC", str(path))

    return install


def build(root, cache, limit=PLENTY, variants=(VARIANT,)):
    return build_variants(root, variants, cache, limit, 2, lambda line: None)


def assert_nothing_is_left(tmp_path, cache):
    assert not alive(logged_pids(tmp_path, "pids"))
    assert not cache.exists() or {path.name for path in cache.iterdir()} <= {".lock", ".hashes.json"}


def test_a_compiler_that_fails(fake_nvcc, repository, tmp_path):
    fake_nvcc("echo 'In file included from x.cu:1:'; echo 'x.cu(7): error: no such thing' >&2; echo more; exit 2\n")
    (result,) = build(repository, tmp_path / "cache")
    assert result.error == "x.cu(7): error: no such thing\nIn file included from x.cu:1:\nmore"
    assert (result.ptx, result.cubin, result.resources) == ("", "", None)
    assert_nothing_is_left(tmp_path, tmp_path / "cache")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("exit 7\n", "nvcc failed with exit code 7"),
        ("kill -SEGV $$\n", "nvcc failed with SIGSEGV"),
        ("exit 0\n", "nvcc wrote no PTX"),
        (
            'for last; do :; done; while [ "$1" != -o ]; do shift; done; echo ptx >"$2"\n',
            "entry of kernel/sm100/fmha_fwd.cu: there is no ",
        ),
    ],
    ids=["silently", "by-signal", "without-output", "with-empty-output"],
)
def test_a_compiler_that_fails_without_saying_why(fake_nvcc, repository, tmp_path, body, error):
    fake_nvcc(body)
    (result,) = build(repository, tmp_path / "cache")
    assert result.error is not None
    assert result.error.startswith(error)
    assert_nothing_is_left(tmp_path, tmp_path / "cache")


def test_a_compiler_that_hangs_is_ended_with_everything_it_started(fake_nvcc, repository, tmp_path):
    fake_nvcc(HANGS)
    (result,) = build(repository, tmp_path / "cache", limit=8.0)
    assert result.error is not None
    assert result.error.splitlines()[0] == "nvcc exceeded 8 s, killed"
    assert len(logged_pids(tmp_path, "pids")) == 3
    assert_nothing_is_left(tmp_path, tmp_path / "cache")


def test_nothing_of_a_compiler_goes_on_outside_of_its_sandbox(fake_nvcc, repository, tmp_path):
    mark = f"{600 + os.getpid() / 1e7:.7f}"
    fake_nvcc(f"trap '' TERM; (setsid sleep {mark} &); sleep {mark} & exec sleep {mark}\n")
    (result,) = build(repository, tmp_path / "cache", limit=2.0)
    assert result.error is not None
    assert result.error.splitlines()[0] == "nvcc exceeded 2 s, killed"
    assert not [process for process in psutil.process_iter(["cmdline"]) if mark in (process.info["cmdline"] or [])]


def test_a_compiler_that_leaves_a_child_behind(fake_nvcc, repository, tmp_path):
    fake_nvcc('(trap "" TERM; exec sleep 600) & echo "pid $!" >>"$PIDS"; echo "error: x"; exit 1\n')
    (result,) = build(repository, tmp_path / "cache")
    assert result.error == "error: x"
    assert_nothing_is_left(tmp_path, tmp_path / "cache")


def test_a_compiler_that_hangs_when_asked_for_its_version(fake_nvcc, repository, tmp_path, monkeypatch):
    fake_nvcc('#!/bin/bash\nsleep 600 & echo "pid $!" >>"$PIDS"; wait\n')
    monkeypatch.setattr(nvcc, "QUERY_SECONDS", 2.0)
    with pytest.raises(NvccError, match="does not answer --version in 2 s"):
        build(repository, tmp_path / "cache")
    assert_nothing_is_left(tmp_path, tmp_path / "cache")


@pytest.fixture
def driver(fake_nvcc, repository, tmp_path):
    """A process whose build hangs in the compiler."""
    fake_nvcc(HANGS)
    command = [sys.executable, "-c", DRIVER, str(tmp_path / "cache")]
    with (tmp_path / "out").open("wb") as output:
        process = subprocess.Popen(command, cwd=repository, stdout=output, stderr=output)
    assert eventually(lambda: len(logged_pids(tmp_path, "pids")) == 3)
    yield process
    process.kill()
    process.wait()
    for pid in alive(logged_pids(tmp_path, "pids")):
        os.kill(pid, signal.SIGKILL)


def test_an_interrupt_ends_the_compilers(driver, tmp_path):
    driver.send_signal(signal.SIGINT)
    driver.wait(timeout=60)
    assert "KeyboardInterrupt" in (tmp_path / "out").read_text()
    assert_nothing_is_left(tmp_path, tmp_path / "cache")


def test_what_a_killed_build_leaves_is_swept_by_the_next(driver, fake_nvcc, repository, tmp_path):
    driver.kill()
    driver.wait()
    for pid in alive(logged_pids(tmp_path, "pids")):
        os.kill(pid, signal.SIGKILL)
    assert list((tmp_path / "cache").glob("tmp-*"))
    fake_nvcc("exit 7\n")
    build(repository, tmp_path / "cache")
    assert_nothing_is_left(tmp_path, tmp_path / "cache")


@pytest.mark.nvcc
@pytest.mark.parametrize("nbytes", [1000, 100_000])
def test_a_limit_on_file_sizes_is_not_the_kernel_s_fault(repository, tmp_path, nbytes):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, nbytes))

    cache = tmp_path / "cache"
    command = [sys.executable, "-B", "-c", DRIVER, str(cache)]
    result = subprocess.run(
        command, cwd=repository, preexec_fn=limit, capture_output=True, text=True, timeout=PLENTY, check=False
    )
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert f"CacheError: {cache}: cannot use the build cache: " in last
    assert {path.name for path in cache.iterdir()} <= {".lock", ".hashes.json"}


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a tmpfs of a given size; its folder."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = []

    def mount(size):
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        attempt = subprocess.run(command, capture_output=True, text=True, check=False)
        if attempt.returncode != 0:
            pytest.skip(f"no tmpfs can be mounted here, RLIMIT_FSIZE has to do: {attempt.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield mount
    for path in mounted:
        subprocess.run(["umount", str(path)], check=True)


@pytest.mark.nvcc
@pytest.mark.parametrize("size", ["16k", "128k", "1m"])
def test_a_full_disk_is_not_the_kernel_s_fault(repository, small_disk, size):
    cache = small_disk(size) / "cache"
    with pytest.raises(CacheError, match="cannot use the build cache: No space left on device; free space"):
        build(repository, cache)
    assert {path.name for path in cache.iterdir()} <= {".lock", ".hashes.json"}


def test_a_compiler_that_does_not_say_that_the_disk_is_full(fake_nvcc, repository, small_disk):
    """cicc and ptxas may fail on half a file with an error of any kind."""
    disk = small_disk("2m")
    fake_nvcc(f"dd if=/dev/zero of={disk}/fill bs=1k status=none; echo 'x.cu(1): internal error' >&2; exit 2")
    with pytest.raises(CacheError, match="No space left on device"):
        build(repository, disk / "cache")


def test_an_error_of_the_kernel_is_one_where_there_is_room(fake_nvcc, repository, tmp_path):
    fake_nvcc("echo 'x.cu(1): internal error' >&2; exit 2")
    assert build(repository, tmp_path / "cache")[0].error == "x.cu(1): internal error"


@pytest.mark.parametrize(
    "body",
    [
        "kill -9 $$",
        "sh -c 'kill -9 $$'; echo \"nvcc error   : 'cicc' died due to signal 9 (Kill signal)\" >&2; exit 9",
        "echo 'g++: fatal error: Killed signal terminated program cc1plus' >&2; exit 1",
        "echo 'cc1plus: out of memory allocating 65536 bytes' >&2; exit 1",
    ],
)
def test_a_compiler_that_the_kernel_kills_is_no_evidence(fake_nvcc, repository, tmp_path, body):
    fake_nvcc(body)
    with pytest.raises(NvccError, match="ended from outside, or for want of memory"):
        build(repository, tmp_path / "cache")
    assert_nothing_is_left(tmp_path, tmp_path / "cache")


@pytest.mark.nvcc
def test_the_real_compilers_child_is_killed(repository, tmp_path):
    """By SIGKILL, as the kernel's OOM killer does it, while the real nvcc waits for it."""
    command = [sys.executable, "-B", "-c", DRIVER, str(tmp_path / "cache")]
    driver = subprocess.Popen(command, cwd=repository, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def killed():
        for child in psutil.Process(driver.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if child.name() == "cicc":
                    child.kill()
                    return True
        return driver.poll() is not None

    assert eventually(killed)
    _, stderr = driver.communicate(timeout=PLENTY)
    assert "the compiler was ended from outside" in stderr
    assert "NvccError" in stderr


def test_a_cache_that_cannot_be_created(fake_nvcc, repository, tmp_path):
    fake_nvcc("exit 7\n")
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(CacheError, match="cannot use the build cache"):
        build(repository, blocked / "cache")


def fill(folder):
    with (folder / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass


def test_a_run_folder_on_a_full_disk(repository, small_disk):
    folder = small_disk("64k")
    fill(folder)
    job = Job("emulator", (), (Configuration(64, 1, 128),), seed=0)
    with pytest.raises(WorkerError, match="cannot run workers: No space left on device"):
        list(run_worker(job, folder / "run", PLENTY, PLENTY, repository))
