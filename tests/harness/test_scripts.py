"""Ordinary Python whose kernels run on the emulator: scripts, decorated functions, tests."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from fmha.harness.cli import run
from fmha.harness.errors import ExitCode
from fmha.harness.scripted import script_run as scripts

pytestmark = [pytest.mark.triton, pytest.mark.xdist_group("triton")]

if find_spec("triton") and find_spec("torch"):
    import torch
    from triton.tools.tensor_descriptor import TensorDescriptor

    import fmha
    from fmha.harness.scripted import torch_device
    from tests.harness import triton_kernels as kernels

SCRIPT = """\
import sys
import torch
import triton_kernels as kernels

assert torch.cuda.is_available()
x, y = torch.rand(1000, device="cuda"), torch.rand(1000).cuda()
out = kernels.added(x, y)
assert out.is_cuda and out.device == x.device
torch.cuda.synchronize()
torch.testing.assert_close(out.cpu(), x.cpu() + 2 * y.cpu())
if "racy" in sys.argv:
    print(kernels.summed(torch.ones(1024, device="cuda")).item())
sys.exit(5 if "five" in sys.argv else 0)
"""


def line_of(function: Any, part: str) -> int:
    """Of the one line of a function that has that part."""
    lines, first = inspect.getsourcelines(getattr(function, "fn", function))
    (found,) = [first + at for at, line in enumerate(lines) if part in line]
    return found


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        patch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # without a word Triton warns of what will change
        yield


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "triton_kernels.py").write_text(Path(kernels.__file__).read_text())
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def emulate(script: Path, *words: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "fmha", "emulate", *options, "--", "python", script.name, *words]
    return subprocess.run(command, cwd=script.parent, capture_output=True, text=True, check=False)


def test_a_script_runs_and_its_launches_are_counted(script: Path) -> None:
    done = emulate(script, options=("--json", "--arch", "sm_90a"))
    assert (done.returncode, done.stderr) == (ExitCode.PASS, "")
    told = json.loads(done.stdout)
    (launch,) = told["launches"]
    assert launch["kernel"] == "add"
    assert launch["line"] == f"triton_kernels.py:{line_of(kernels.added, 'add[')}"
    assert launch["stats"]["warp_instructions"] > 0


@pytest.mark.parametrize(("arch", "gpu"), [("sm_90a", "h200"), ("sm_100a", "b200")])
def test_the_time_of_a_scripts_launches_is_modelled(script: Path, arch: str, gpu: str) -> None:
    done = emulate(script, "racy", options=("--timing", "whole", "--arch", arch))
    assert done.returncode == ExitCode.GATE_FAILED, "a hazard is one with a time as without"
    head, titles, *rows, last = done.stdout.splitlines()[-5:]
    assert (head, titles) == (f"modelled, on {gpu}:", "  us in all  launches  us each  bound")
    kernels_seen = {row.split()[4].rstrip(",") for row in rows}
    assert kernels_seen == {"add", "racy_sum"}
    assert all(float(row.split()[0]) > 0 for row in rows)
    assert last.startswith("FAIL: 2 launches")


def test_a_script_that_is_sampled_is_not_checked(script: Path) -> None:
    script.write_text(SCRIPT.replace("torch.testing", "0 and torch.testing"))
    done = emulate(script, options=("--timing", "sampled", "--json"))
    assert (done.returncode, done.stderr) == (ExitCode.PASS, "")
    (launch,) = json.loads(done.stdout)["launches"]
    assert launch["modelled"]["seconds"] > 0
    done = emulate(script, options=("--timing", "sampled"))
    assert done.stdout.splitlines()[-1].startswith("MODELLED, NOT CHECKED: 1 launches")
    refused = emulate(script, options=("--timing", "sampled", "--arch", "sm_80"))
    assert refused.returncode == ExitCode.USAGE
    assert "no GPU of sm_80 is modelled" in refused.stderr


def test_a_hazard_has_the_line_that_launched_and_the_kernels_own(script: Path) -> None:
    done = emulate(script, "racy", "five")
    assert done.returncode == ExitCode.GATE_FAILED
    launched = line_of(kernels.summed, "racy_sum[")
    assert f"triton_kernels.py:{launched}: launch of racy_sum\nerror: race: " in done.stderr
    assert f"triton_kernels.py:{line_of(kernels.racy_sum, 'tl.store')}" in done.stderr
    assert "what to do: " in done.stderr
    last = done.stdout.splitlines()[-1]
    assert re.fullmatch(r"FAIL: 2 launches, [\d,]+ warp instructions, \d hazards; the script ended with 5", last)


def test_the_example_of_the_documentation(repository: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```(\w+)\n(.*?)```", (repository / "docs/use/scripts.md").read_text(), re.DOTALL)
    (tmp_path / "script.py").write_text(next(text for kind, text in blocks if kind == "python"))
    shown = next(text for kind, text in blocks if kind == "console").splitlines()[2:]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert run(["emulate", "--", "python", "script.py"]) == ExitCode.GATE_FAILED
    out, err = capfd.readouterr()
    said = [*err.splitlines(), *out.splitlines()]
    for line in shown:
        found = re.sub(r"PTX line \d+|[\d,]+ warp", "", line)  # another Triton may have others
        assert line == "..." or found in [re.sub(r"PTX line \d+|[\d,]+ warp", "", other) for other in said]


@pytest.mark.cute
def test_a_launch_of_cute_dsl_is_told_for_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "launch.py"
    script.write_text(
        "from cutlass import cute\n\n\n"
        "@cute.kernel\ndef nothing():\n    pass\n\n\n"
        "@cute.jit\ndef launch():\n    nothing().launch(grid=(1, 1, 1), block=(32, 1, 1))\n\n\nlaunch()\n"
    )
    monkeypatch.setenv("CUTE_DSL_ARCH", "sm_90a")
    done = emulate(script)
    assert done.returncode == ExitCode.GATE_FAILED
    assert f"fmha: {scripts.NO_CUTE}" in done.stderr


def test_an_exception_of_the_script_is_told_from_its_own_line_on(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script.write_text("def f():\n    raise ValueError('mine')\nf()\n")
    assert run(["emulate", "--", "python", str(script)]) == ExitCode.GATE_FAILED
    told = capsys.readouterr().err
    assert told.splitlines()[-1] == "ValueError: mine"
    assert [Path(name).name for name in re.findall(r'File "(.*?)"', told)] == ["script.py", "script.py"]


def test_what_the_command_line_cannot_mean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["emulate", "--", "python", "none.py"]) == ExitCode.USAGE
    assert "none.py: no script" in capsys.readouterr().err
    assert run(["emulate", "--launch", "x", "--", "python", "none.py"]) == ExitCode.USAGE
    assert run(["emulate", "--arch", "sm_90a", "kernel.ptx"]) == ExitCode.USAGE
    (tmp_path / "script.py").touch()
    assert run(["emulate", "--arch", "sm_70", "--", "python", "script.py"]) == ExitCode.USAGE
    assert "--arch: 'sm_70' is not one of sm_80, sm_90a, sm_100a" in capsys.readouterr().err
    monkeypatch.setattr(scripts, "find_spec", lambda name: None)
    assert run(["emulate", "--", "python", "script.py"]) == ExitCode.USAGE
    assert "'triton>=3.9'" in capsys.readouterr().err


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_descriptors_of_the_host_and_of_the_kernel(arch: str) -> None:
    with fmha.emulated(arch=arch) as machine:
        generator = torch.Generator(device="cuda").manual_seed(1)
        a, b = (torch.randn(128, 192, generator=generator, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        c = torch.empty(128, 128, device="cuda")
        made = [TensorDescriptor(t, list(t.shape), list(t.stride()), [128, 64]) for t in (a, b)]
        kernels.matmul[(1, 1)](*made, c, 128, 128, 192, BM=128, BN=128, BK=64)
        assert machine.launches[0].report.stats["bulk_loads"] == 6
    torch.testing.assert_close(c, a.float() @ b.float().T, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("schedule", ["realistic", "random"])
def test_a_decorated_function_fails_for_its_hazards(schedule: str) -> None:
    @fmha.emulated(schedule=schedule, seed=3)
    def racy() -> float:
        return kernels.summed(torch.ones(1024, device="cuda")).item()

    @fmha.emulated
    def clean() -> bool:
        return bool((kernels.added(torch.ones(300), torch.ones(300)) == 3).all())

    with pytest.raises(fmha.HazardError) as caught:
        racy()
    assert {told.finding.rule for told in caught.value.hazards} == {"race"}
    assert {told.kernel for told in caught.value.hazards} == {"racy_sum"}
    assert clean()


def test_torch_is_as_it_was_afterwards() -> None:
    before = torch.cuda.is_available()
    generator = torch.Generator
    with fmha.emulated():
        x = torch.ones(4, device="cuda")
        y = x.cpu()
        x += 1
        assert (y.sum().item(), x.device.type, torch.cuda.get_device_capability()) == (4.0, "cuda", (10, 0))
        assert x.new_zeros(2, device="cuda").is_cuda
        assert torch.nn.Linear(2, 2).to("cuda").weight.is_cuda
    assert (x.device.type, x.is_cuda) == ("cpu", False)
    assert torch.cuda.is_available() == before
    assert torch.Generator is generator
    with pytest.raises((RuntimeError, AssertionError)):
        torch.ones(4, device="cuda:99")


def test_a_device_that_is_set_for_all_tensors_is_the_emulator() -> None:
    def devices() -> list[str]:
        return [torch.zeros(2).device.type, torch.nn.Linear(2, 2).weight.device.type]

    with fmha.emulated():
        with torch.device("cuda"):
            assert devices() == ["cuda"] * 2
        torch.set_default_device("cuda:0")
        try:
            assert devices() == ["cuda"] * 2
        finally:
            torch.set_default_device(None)
    assert devices() == ["cpu"] * 2


def test_the_code_that_inductor_writes_finds_what_it_calls() -> None:
    had = hasattr(torch._C, "_cuda_getCurrentRawStream")
    with fmha.emulated():
        from torch._C import _cuda_getCurrentRawStream as get_raw_stream

        with torch.cuda._DeviceGuard(0):
            torch.cuda.set_device(0)
            made = torch._C._dynamo.guards._empty_strided_cuda((2, 3), (1, 2), torch.bfloat16)
        assert (made.device.type, made.stride(), made.dtype, get_raw_stream(0)) == ("cuda", (1, 2), torch.bfloat16, 0)
    assert hasattr(torch._C, "_cuda_getCurrentRawStream") == had


def test_calls_of_torch_cuda_that_have_nothing_to_do() -> None:
    with fmha.emulated():
        x = torch.ones(4, device="cuda")
        x.record_stream(torch.cuda.default_stream())
        with torch.cuda.device(0), torch.cuda.device_of(x), torch.cuda.nvtx.range("part"):
            torch.cuda.init()
            torch.cuda.ipc_collect()
            torch.cuda.reset_peak_memory_stats()
        free, total = torch.cuda.mem_get_info()
        assert 0 < free <= total == torch.cuda.get_device_properties(0).total_memory
        state = torch.cuda.get_rng_state()
        first = torch.rand(3, device="cuda")
        torch.cuda.set_rng_state(state)
        assert torch.equal(torch.rand(3, device="cuda"), first)


def test_a_graph_does_again_what_its_capture_has_recorded() -> None:
    with fmha.emulated() as machine:
        x, y, total = torch.ones(300, device="cuda"), torch.ones(300, device="cuda"), torch.zeros(1, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            assert torch.cuda.is_current_stream_capturing()
            z = kernels.added(x, y)
            z.unsqueeze_(0)
            z += 1
            total += (z * 2).sum()
            picked = z.argmax()
        assert not torch.cuda.is_current_stream_capturing()
        assert (machine.launches, machine.findings, total.item()) == ([], [], 0)
        assert z.isnan().all()  # nothing has been computed
        expected = 0.0
        for turn in range(3):
            x.copy_(torch.arange(300) * (-1) ** turn)
            y.fill_(turn)
            graph.replay()
            assert torch.equal(z[0], x + 2 * y + 1)
            expected += 2 * z.sum().item()
            assert (total.item(), picked.item()) == (expected, 299 * (turn % 2 == 0))
        assert [made.kernel for made in machine.launches] == ["add"] * 3
        captured = f"triton_kernels.py:{line_of(kernels.added, 'add[')}"
        assert all(made.line.endswith(captured) for made in machine.launches)
        graph.reset()
        with pytest.raises(RuntimeError, match="not been captured"):
            graph.replay()


def test_a_hazard_of_a_graph_is_told_when_it_is_replayed() -> None:
    before: list[Any] = []

    @fmha.emulated
    def replayed() -> None:
        x, graph = torch.ones(1024, device="cuda"), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kernels.summed(x)
        before.append(graph)
        graph.replay()

    with pytest.raises(fmha.HazardError) as caught:
        replayed()
    assert before  # the capture has told nothing, and gone on
    assert {told.finding.rule for told in caught.value.hazards} == {"race"}


@pytest.mark.parametrize("read", ["item", "cpu", "tolist", "numpy", "nonzero", "synchronize"])
def test_a_capture_refuses_what_the_host_waits_for(read: str) -> None:
    with fmha.emulated():
        x, graph = torch.ones(1, device="cuda"), torch.cuda.CUDAGraph()

        def capture() -> None:
            with torch.cuda.graph(graph):
                assert x.item() == 1  # was there before
                y = x + 1
                getattr(torch.cuda if read == "synchronize" else y, read)()

        with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
            capture()
        with pytest.raises(RuntimeError, match="not been captured"):
            graph.replay()


def test_modules_whose_steps_are_graphs() -> None:
    with fmha.emulated():
        net, plain = (
            torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)) for _ in "ab"
        )
        plain.load_state_dict(net.state_dict())
        graphed = torch.cuda.make_graphed_callables(net, (torch.randn(5, 8, device="cuda", requires_grad=True),))
        for _ in range(2):
            x = torch.randn(5, 8, device="cuda", requires_grad=True)
            same = x.detach().clone().requires_grad_()
            for module, value in ((graphed, x), (plain, same)):
                module.zero_grad()
                module(value).square().sum().backward()
            torch.testing.assert_close(x.grad, same.grad)
            for one, other in zip(net.parameters(), plain.parameters(), strict=True):
                torch.testing.assert_close(one.grad, other.grad)


def test_each_name_of_torch_cuda_has_a_function_of_its_own() -> None:
    """torch._dynamo looks for its rule of a name by the function, and is not loaded where two names have one."""
    with fmha.emulated() as machine:
        values = [value for value in torch_device._cuda(lambda: machine).values() if inspect.isfunction(value)]
    assert len(values) == len({id(value) for value in values}) > 10


def test_an_autotuner_takes_the_first_configuration_that_compiles_and_runs_it_once() -> None:
    with fmha.emulated() as machine:
        x = torch.ones(100, device="cuda")
        kernels.scaled[lambda meta: (-(-100 // meta["BLOCK"]),)](x, 100)
    assert x.tolist() == [2.0] * 100
    assert [made.kernel for made in machine.launches] == ["scaled"]


def test_views_of_one_storage_are_one_memory() -> None:
    with fmha.emulated():
        both = torch.arange(512, device="cuda", dtype=torch.float32)
        add = kernels.add[(1,)]
        add(both[:256], both[256:], both[256:], 256, 1.0, BLOCK=256)
    assert both.tolist() == [float(i) for i in range(256)] + [float(2 * i + 256) for i in range(256)]


def test_a_launch_that_no_gpu_would_take_is_refused_with_its_line() -> None:
    with fmha.emulated():
        x = torch.ones(4, device="cuda")
        with pytest.raises(fmha.LaunchRefusedError, match=r"test_scripts.py:\d+: launch of add refused"):
            kernels.add[(1, 70000)](x, x, x, 4, 1.0, BLOCK=32)


TESTS = """\
import pytest
import torch
import triton_kernels as kernels

@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_clean():
    x = torch.ones(300, device="cuda")
    assert (kernels.added(x, x) == 3).all()

@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_racy():
    kernels.summed(torch.ones(1024, device="cuda"))
"""


def test_pytest_fails_a_test_whose_launches_have_hazards(script: Path) -> None:
    script.write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "fmha.harness.scripted.plugin",
        script.name,
    ]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    def pytest_says(*options: str) -> str:
        ran = subprocess.run(
            [*command, *options], cwd=script.parent, capture_output=True, text=True, check=False, env=environment
        )
        return ran.stdout + ran.stderr

    said = pytest_says("--fmha-emulate", "--fmha-arch", "sm_90a")
    assert "1 failed, 1 passed" in said
    assert "HazardError" in said
    assert f"triton_kernels.py:{line_of(kernels.summed, 'racy_sum[')}: launch of racy_sum" in said
    assert "1 failed, 1 passed" in pytest_says("--fmha-emulate", "--fmha-arch", "sm_90a", "--fmha-schedules", "3")
    assert "--fmha-profile: 'lax' is not one of" in pytest_says("--fmha-emulate", "--fmha-profile", "lax")
