import re
import subprocess
import sys

import pytest

from fmha.harness.contract.device import DeviceError, IllegalError
from fmha.harness.contract.protocol import BuildResult, Configuration, Job, Resources
from fmha.harness.isolate import IsolationError
from fmha.harness.kernel_side.variants import VARIANTS
from fmha.harness.worker.__main__ import run_job
from fmha.harness.worker.devices.factory import DEVICES, device_factory
from tests.worker.numpy_device import NumpyDevice


def job_of(folder, *configurations, error=None):
    ptx = folder / "kernel.ptx"
    ptx.write_text("// any")
    build = BuildResult(VARIANTS[0], str(ptx), "", Resources(1, 0, 0, 0, 0), "", "nvcc", (), 0.0, False, error)
    return Job("numpy", (build,), configurations, seed=5)


def test_each_configuration_has_a_device_of_its_own_which_is_closed(tmp_path):
    devices, events = [], []

    def open_device(seed, schedule):
        devices.append(NumpyDevice(seed, schedule))
        return devices[-1]

    run_job(job_of(tmp_path, Configuration(64, 1, 128), Configuration(64, 4, 128)), open_device, events.append)
    assert [event.event for event in events] == ["started", "result", "started", "result", "done"]
    assert [device.closed for device in devices] == [True, True]
    assert all(event.seconds > 0 for event in events if event.event == "result")


def test_numbers_do_not_depend_on_what_ran_before(tmp_path):
    first, second = Configuration(64, 1, 128), Configuration(64, 4, 128)
    runs = []
    for order in ((first, second), (second, first)):
        events = []
        run_job(job_of(tmp_path, *order), NumpyDevice, events.append)
        runs.append({event.config: event.measurement for event in events if event.event == "result"})
    assert runs[0] == runs[1]


def test_a_variant_that_did_not_build(tmp_path):
    events = []
    run_job(job_of(tmp_path, Configuration(64, 1, 128), error="x.cu(1): error: no"), NumpyDevice, events.append)
    assert (events[1].status, events[1].message) == ("build-error", "sm100_hd64_ptmem: x.cu(1): error: no")


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (IllegalError("launch of k refused: block.x is 2048"), "crash", "launch of k refused: block.x is 2048"),
        (DeviceError("the executor does not start"), "infra-error", "the executor does not start"),
        (IsolationError("there is no sandbox"), "infra-error", "there is no sandbox"),
        (MemoryError(), "infra-error", "MemoryError"),
        (KeyError("s_k"), "crash", "KeyError: 's_k'"),
    ],
)
def test_whose_fault_an_error_is(tmp_path, error, status, message):
    """infra-error is for what is not the author's."""

    def open_device(seed, schedule):
        raise error

    events = []
    run_job(job_of(tmp_path, Configuration(64, 1, 128)), open_device, events.append)
    assert (events[1].status, events[1].message) == (status, message)


def test_what_the_kernels_side_raises_is_told_with_its_line(tmp_path):
    class Short(NumpyDevice):
        def encode_tensor_map(self, spec):
            return b"map"

    events = []
    run_job(job_of(tmp_path, Configuration(64, 1, 128)), Short, events.append)
    assert events[1].status == "crash"
    assert re.search(r"128 bytes, not 3 \(harness/kernel_side/params.py:\d+\)$", events[1].message)


@pytest.mark.parametrize("text", ["{", '{"device": "emulator"}', None])
def test_a_bad_job_file_is_one_line_and_exit_code_2(repository, tmp_path, text):
    path = tmp_path / "job.json"
    if text is not None:
        path.write_text(text)
    command = [sys.executable, "-m", "fmha.harness.worker", str(path)]
    result = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=120, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert str(path) in result.stderr


@pytest.mark.parametrize("name", ["abacus", "tests.worker.numpy_device:Missing", "no.such.module:Device"])
def test_a_device_that_is_not_there(name):
    with pytest.raises(LookupError, match=re.escape(name)):
        device_factory(name)


def test_a_device_by_module_and_attribute():
    assert device_factory("tests.worker.numpy_device:NumpyDevice").__name__ == "NumpyDevice"


def test_a_run_reaches_the_emulator_through_one_file(repository):
    """The others look at kernels, model their time, or run what is no kernel of a matrix: commands of their own."""
    importing = re.compile(r"^\s*from fmha(\.emulator\b|(\.emulator)? import .*\bemulator\b)", re.MULTILINE)
    files = [path for path in (repository / "harness").rglob("*.py") if importing.search(path.read_text())]
    names = {path.relative_to(repository).as_posix() for path in files}
    beside = ("harness/cli/", "harness/emulate/", "harness/mcp/", "harness/scripted/", "harness/see/")
    assert {name for name in names if not name.startswith(beside)} == {
        "harness/bench/trials/trial_order.py",
        "harness/bench/trials/triton_times.py",
        "harness/hosts/installed_commit.py",
        "harness/problems/extension.py",  # the runtime that an answer's host code links to
        "harness/report/details.py",
        "harness/worker/devices/emulator_device.py",
        "harness/worker/devices/grid_before.py",  # what the former runs before a launch that overlaps
    }
    assert DEVICES["emulator"].startswith("fmha.harness.worker.devices.emulator_device:")
