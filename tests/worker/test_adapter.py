"""An adapter is in a process of its own, in a sandbox, and is believed in nothing: what it tries, and what is said."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmha.harness import isolate
from fmha.harness.judge.case import Case, Field, case_of
from fmha.harness.worker.devices.emulator_device import EmulatorDevice
from fmha.harness.worker.subjects.adapter import Adapter
from fmha.harness.worker.subjects.adapter_process import MOST_SHOWN, AdapterError
from fmha.harness.worker.subjects.called import subject_of
from fmha.harness.worker.subjects.declared import Declared, Expected
from tests.worker.adapters import CALLED, TWICE, adapter_of
from tests.worker.numpy_device import NumpyDevice

CASE = case_of("twice", (Field("size"),), {"size": 4})
SECRET = "-----BEGIN OPENSSH PRIVATE KEY-----"


def tries(folder: Path, body: str, text: str = TWICE, method: str = "inputs(self, case, random)") -> Adapter:
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    return adapter_of(folder, text, f"def {method}:\n{lines}")


def test_it_answers_with_plain_data(tmp_path: Path) -> None:
    more = """
    def scratch(self, case):
        return {"half": Output((case.size, np.int64(2)), "bf16")}

    def launches(self, case):
        params = Struct(32, {0: "x", 8: "y", 16: case.size, 24: np.float64(0.5)})
        args = [params, 7, 0.5, np.uint16(3), b"ab"]
        return [Launch((1, 1, np.int32(1)), (32, 1, 1), args, entry="other", overlaps=True)]
    """
    adapter = adapter_of(tmp_path, TWICE, more)
    assert (adapter.description.source, adapter.fields) == ("twice.cu", (Field("size"),))
    assert adapter.build(CASE, "sm_90a").entry == "twice"
    inputs = adapter.inputs(1, CASE)
    assert adapter.reference(CASE, inputs)["y"] == pytest.approx(2 * inputs["x"].astype(np.float64))
    other = {"x": np.arange(4, dtype=np.float32)}
    assert list(adapter.reference(CASE, other)["y"]) == [0.0, 2.0, 4.0, 6.0], "of what it is given"
    assert list(adapter.inputs(1, CASE)["x"]) == list(inputs["x"]) != list(adapter.inputs(2, CASE)["x"])
    assert {name: (item.shape, item.dtype) for name, item in adapter.scratch(CASE).items()} == {
        "half": ((4, 2), "bf16")
    }
    (launch,) = adapter.launches(CASE, "sm_90a")
    assert (launch.grid, launch.entry, launch.overlaps) == ((1, 1, 1), "other", True)
    text = (tmp_path / "adapter.py").read_text().splitlines()
    (line,) = [number for number, words in enumerate(text, 1) if "return [Launch(" in words and "other" in words]
    assert launch.where == f"adapter.py:{line}"
    packed, *others = launch.args
    assert packed.at == {0: "x", 8: "y", 16: b"\4\0\0\0", 24: b"\0\0\0\0\0\0\xe0?"}  # type: ignore[union-attr]
    assert others == [b"\7\0\0\0", b"\0\0\0?", b"\3\0", b"ab"]


@pytest.mark.parametrize(
    "method", ["inputs(self, case, random)", "reference(self, case, inputs)", "launches(self, case)"]
)
def test_what_goes_wrong_is_told_with_its_line(tmp_path: Path, method: str) -> None:
    adapter = tries(tmp_path, "raise KeyError('no such thing')", method=method)
    line = (tmp_path / "adapter.py").read_text().splitlines().index("        raise KeyError('no such thing')") + 1
    with pytest.raises(AdapterError) as caught:
        _all_of(adapter)
    assert caught.value.what == f"KeyError: 'no such thing' (adapter.py:{line})"


def _all_of(adapter: Adapter) -> None:
    adapter.reference(CASE, adapter.inputs(0, CASE))
    adapter.outputs(CASE)
    adapter.launches(CASE, "sm_90a")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a key in it."""
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(parents=True)
    (folder / ".ssh" / "id_x").write_text(SECRET)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent.sock")
    monkeypatch.setenv("FORGE_TOKEN", "hunter2")
    return folder


def test_it_cannot_read_the_home(tmp_path: Path, home: Path) -> None:
    (project := tmp_path / "project").mkdir()
    body = f"""
import os, pathlib
found = []
for path in ({str(home)!r} + "/.ssh/id_x", os.path.expanduser("~/.ssh/id_x"), "/proc/self/root{home}/.ssh/id_x"):
    try:
        found.append(pathlib.Path(path).read_text())
    except OSError:
        pass
raise ValueError(f"found {{found}}, {{sorted(name for name in os.environ if 'SSH' in name or 'TOKEN' in name)}}")
"""
    with pytest.raises(AdapterError, match=r"ValueError: found \[\], \[\] \(adapter.py:"):
        tries(project, body).inputs(0, CASE)


def test_it_writes_nowhere_but_in_its_own_folder(tmp_path: Path, home: Path) -> None:
    (project := tmp_path / "project").mkdir()
    judge = Path(subject_of.__code__.co_filename).resolve()
    before = judge.read_bytes()
    body = f"""
import os, pathlib, tempfile
written = []
for path in {[str(path) for path in (project / "twice.cu", project / "new", judge, home / "new", "/usr/lib/new")]}:
    try:
        pathlib.Path(path).write_text("mine")
        written.append(path)
    except OSError:
        pass
tempfile.TemporaryFile().write(b"mine")
raise ValueError(f"written {{written}}")
"""
    with pytest.raises(AdapterError, match=r"ValueError: written \[\]"):
        tries(project, body).inputs(0, CASE)
    assert judge.read_bytes() == before
    assert sorted(path.name for path in project.iterdir()) == ["adapter.py", "twice.cu"]
    assert sorted(path.name for path in home.iterdir()) == [".ssh"]


@pytest.mark.parametrize("mechanism", isolate.MECHANISMS)
@pytest.mark.parametrize(
    "save",
    [
        "tempfile.NamedTemporaryFile(dir=ROOT)",
        "open(os.path.join(ROOT, 'tuned.json.new'), 'w')",
        "os.replace(tempfile.mkstemp()[1], os.path.join(ROOT, 'tuned.json'))",
        "os.replace(os.path.join(ROOT, 'twice.cu'), os.path.join(ROOT, 'other.cu'))",
        "os.unlink(os.path.join(ROOT, 'twice.cu'))",
    ],
)
def test_who_saves_beside_it_is_told_where_it_may_write(
    tmp_path: Path, save: str, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isolate._found(mechanism).mechanism != mechanism:
        pytest.skip(isolate._found(mechanism).missing)
    monkeypatch.setenv(isolate.VARIABLE, mechanism)
    body = f"import os, tempfile\n{save.replace('ROOT', repr(str(tmp_path)))}"
    with pytest.raises(AdapterError) as caught:
        tries(tmp_path, body).inputs(0, CASE)
    assert re.search(
        r"\(adapter\.py:\d+\); in its sandbox it writes below \S+ \(TMPDIR\) alone, and nothing of the repository$",
        caught.value.what,
    ), caught.value.what
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter.py", "twice.cu"]


def test_it_has_no_network(tmp_path: Path) -> None:
    body = """
import socket
socket.create_connection(("127.0.0.1", PORT), timeout=5)
"""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        adapter = tries(tmp_path, body.replace("PORT", str(server.getsockname()[1])))
        with pytest.raises(AdapterError, match=r"(Error|refused|unreachable|not permitted)"):
            adapter.inputs(0, CASE)


def test_what_it_changes_of_the_judge_is_changed_there_alone(tmp_path: Path) -> None:
    """Its process has modules of the judge's too; the judge measures with its own."""
    body = """
import sys
import fmha.harness.judge.oracle.measure as measure
import fmha.harness.worker.subjects.kernel as kernel
measure.general = kernel.from_bf16 = lambda *found: 1 / 0
kernel.DTYPES = None
np.float64 = None
return {"x": random.standard_normal(case.size).astype(np.float32)}
"""
    subject = Declared(tries(tmp_path, body))
    inputs = subject.inputs(0, CASE)
    expected = Expected({"y": 2.0 * inputs["x"].astype(np.float64)})
    from fmha.harness.contract.device import LaunchReport
    from fmha.harness.worker.subjects.declared import DeclaredRun

    wrong = DeclaredRun({"y": np.full(4, 7.0, np.float32)}, LaunchReport())
    assert subject.measure(CASE, wrong, expected).max_error > 1.0


def test_what_it_prints_is_no_answer(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    body = """
import os
print('{"done": {}, "arrays": []}')
os.write(1, b"also by the descriptor\\n")
os.system("echo by a shell")
return {"x": np.ones(case.size, np.float32)}
"""
    adapter = tries(tmp_path, body)
    assert list(adapter.inputs(0, CASE)["x"]) == [1.0] * 4
    adapter.close()
    said = capfd.readouterr()
    assert said.out == ""
    assert "| also by the descriptor\n| by a shell\n" in said.err
    assert all(line.startswith("| ") for line in said.err.splitlines())  # or `PASS 9 of 9` of its own could be ours


def test_what_it_prints_is_no_order(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither to a terminal nor to a CI system, and it has an end."""
    body = """
import sys
print("::stop-commands::x")
print("\\x1b]52;c;aGk=\\x07\\x1b[2J", file=sys.stderr)
for _ in range(300):
    print("x" * 9999)
return {"x": np.ones(case.size, np.float32)}
"""
    adapter = tries(tmp_path, body)
    adapter.inputs(0, CASE)
    adapter.close()
    said = capfd.readouterr().err
    assert "| \\::stop-commands::x\n" in said
    assert "\x1b" not in said
    assert len(said) <= MOST_SHOWN + 9 + len("| ") * said.count("\n")


# By the descriptor of its answers, which it can find. `{}` is written in place of the answer to `inputs`.
WRITES = """
import os
for number in range(3, 64):
    try:
        if os.readlink(f"/proc/self/fd/{{number}}").startswith("pipe:"):
            os.write(number, {})
    except OSError:
        pass
return {{"x": np.ones(case.size, np.float32)}}
"""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"\x80\x04\x95garbage\n", "is no JSON"),
        (b"[1, 2]\n", "is no object"),
        (b"[" * 100_000 + b"\n", "is no JSON"),
        (b'{"done": {}, "arrays": [["x", "|O", [4]]]}\n', "'|O', which is no number"),
        (b'{"done": {}, "arrays": [["x", "<f4", [-4]]]}\n', "array x has no shape"),
        (b'{"done": {}, "arrays": [["x", "<f4", [1099511627776]]]}\n', "array x has no shape"),
        (b'{"done": {}, "arrays": [["x", "<f8", [34359738368, 1048576]]]}\n', "more than"),
        (b'{"done": {}, "arrays": [["x\\u001b[2J", "<f4", [4]]]}\n', "no printable word"),
        (b'{"ready": {}}\n', "neither has what was asked for nor says why"),
        (b'{"error": 7}\n', "expected words, found 7"),
    ],
)
def test_an_answer_that_is_none_is_refused(tmp_path: Path, line: bytes, words: str) -> None:
    with pytest.raises(AdapterError) as caught:
        tries(tmp_path, WRITES.format(repr(line))).inputs(0, CASE)
    assert "twice: its adapter's answer to 'inputs' is none" in caught.value.what
    assert words in caught.value.what


def test_an_object_that_would_be_unpickled_is_refused(tmp_path: Path) -> None:
    body = """
class Bomb:
    def __reduce__(self):
        return (print, ("boom",))
return {"x": np.array([Bomb()], dtype=object)}
"""
    with pytest.raises(AdapterError, match="TypeError: x is an array of object, which is no number"):
        tries(tmp_path, body).inputs(0, CASE)


@pytest.mark.parametrize(
    ("method", "body", "words"),
    [
        ("outputs(self, case)", 'return {"y": Output((-1,))}', "outputs.y.shape is -1"),
        ("outputs(self, case)", 'return {"y": Output((4,), "O")}', "is not one of f64"),
        ("outputs(self, case)", 'return {"y": Output((1 << 34, 1 << 34))}', "outputs: more than"),
        ("launches(self, case)", "return [Launch((1, 1), (1, 1, 1), [])]", "expected 3 items, found 2"),
        (
            "launches(self, case)",
            "return [Launch((1, 1, 1), (1, 1, 1), [Struct(1 << 40, {})])]",
            "size is 1099511627776",
        ),
        (
            "launches(self, case)",
            'return [Launch((1, 1, 1), (1, 1, 1), [], where="\\x1b[2J")]',
            "where: expected a file",
        ),
        ("build(self, case, arch)", 'return Build("twice; rm -rf /")', "is no name of an entry"),
        ("build(self, case, arch)", 'return Build("twice", {"A=1 -o": 1})', "is no macro with a value"),
        ("build(self, case, arch)", 'return Build("twice", {}, -1)', "Build.shared_bytes is -1"),
        ("fault(self, case)", 'return "\\x1b]52;c;aGk=\\x07 \\x1b[2J"', "]52"),
    ],
)
def test_what_it_says_is_looked_at(tmp_path: Path, method: str, body: str, words: str) -> None:
    adapter = tries(tmp_path, body, method=method)
    if method.startswith("fault"):
        said = adapter.fault(CASE)
        assert said is not None
        assert words in said
        assert said.isprintable()
        return
    asked: Mapping[str, Any] = {
        "outputs": lambda: adapter.outputs(CASE),
        "launches": lambda: adapter.launches(CASE, "sm_90a"),
        "build": lambda: adapter.build(CASE, "sm_90a"),
    }
    with pytest.raises(AdapterError) as caught:
        asked[method.partition("(")[0]]()
    assert words in caught.value.what


@pytest.mark.parametrize("source", ["../outside.cu", "/etc/passwd", "link.cu"])
def test_sources_are_below_the_root(tmp_path: Path, source: str) -> None:
    (project := tmp_path / "project").mkdir()
    (tmp_path / "outside.cu").write_text("secret\n")
    (project / "link.cu").symlink_to("../outside.cu")
    with pytest.raises(AdapterError, match=r"is outside the repository|there is no"):
        assert adapter_of(project, TWICE, source=source).description


def test_another_outputs_shape_is_no_reference(tmp_path: Path) -> None:
    subject = Declared(tries(tmp_path, 'return {"y": np.zeros(())}', method="reference(self, case, inputs)"))
    inputs = subject.inputs(0, CASE)
    from fmha.harness.contract.device import LaunchReport
    from fmha.harness.worker.subjects.declared import DeclaredRun

    ran = DeclaredRun({"y": np.zeros(4, np.float32)}, LaunchReport())
    with pytest.raises(AdapterError, match=r"reference gives y as \(\); the output is \(4,\)"):
        subject.measure(CASE, ran, subject.reference(CASE, inputs))


@pytest.mark.parametrize("where", ["at the start", "when asked"])
def test_one_that_sleeps_is_ended_and_said(tmp_path: Path, where: str) -> None:
    sleeps = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(9)\n"
    if where == "at the start":
        adapter = adapter_of(tmp_path, sleeps + TWICE, limit=1.0)
        with pytest.raises(AdapterError, match="has not answered 'begin' within 1 s and was ended"):
            assert adapter.description
        return
    adapter = adapter_of(tmp_path, TWICE, f"def outputs(self, case):\n{_indented(sleeps)}", limit=10.0)
    assert adapter.description.source
    adapter._judging._limit = 0.5
    with pytest.raises(AdapterError, match=r"has not answered 'outputs' within 0\.5 s and was ended"):
        adapter.outputs(CASE)


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def test_one_that_falls_is_said_and_started_anew(tmp_path: Path) -> None:
    adapter = tries(tmp_path, f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})", method="outputs(self, case)")
    for _ in range(2):
        with pytest.raises(AdapterError, match=r"its adapter's process ended .* when asked for 'outputs'"):
            adapter.outputs(CASE)
    assert adapter.inputs(0, CASE).keys() == {"x"}


def test_nothing_of_it_is_left_when_it_is_closed(tmp_path: Path) -> None:
    adapter = tries(tmp_path, "import os; raise ValueError(os.environ['TMPDIR'])")
    with pytest.raises(AdapterError) as caught:
        adapter.inputs(0, CASE)
    scratch = Path(caught.value.what.split()[1])
    process = adapter._judging._process
    assert scratch.is_dir()
    assert process is not None
    adapter.close()
    assert not scratch.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


# What a callable finds of the reference: in any object of its process, and by asking for it.
LOOKS = """
import gc, os, sys
wanted = [2.0 * value for value in range(4)]
found = [item for item in gc.get_objects() if isinstance(item, np.ndarray) and item.dtype == np.float64]
names = [name for name in sys.modules if "oracle.measure" in name or "harness.stages" in name]
said = [open(f"/proc/{pid}/cmdline", "rb").read() for pid in os.listdir("/proc") if pid.isdigit()]
others = [line for line in said if b"fmha" in line and b"adapter_end" not in line]
raise ValueError(f"found {len(found)} {names} {others}")
"""


@pytest.mark.torch
def test_what_is_called_sees_neither_reference_nor_measure(tmp_path: Path) -> None:
    adapter = tries(tmp_path, LOOKS, CALLED, "call(self, case, tensors)")
    subject = subject_of(adapter)
    device: Any = NumpyDevice()
    inputs = subject.inputs(0, CASE)
    assert subject.reference(CASE, inputs).arrays["y"].shape == (4,)
    variant: Any = subject.variant_for(CASE, "sm_90a")
    with pytest.raises(AdapterError, match=r"ValueError: found 0 \[\] \[\]"):
        subject.run(device, None, variant, CASE, inputs)
    assert adapter._of_kernel is not None
    assert adapter._of_kernel._process is not adapter._judging._process


@pytest.mark.torch
@pytest.mark.parametrize("seconds", ["-1.0", "float('inf')", "1e9", "None", "'0.1'", "0.0"])
def test_a_time_that_cannot_be_is_refused(tmp_path: Path, seconds: str) -> None:
    more = f"""
    def call(self, case, tensors):
        import __main__ as end
        end.batch_of_calls = lambda call, times: lambda: {seconds}
        return lambda: {{"y": tensors["x"]}}
    """
    adapter = adapter_of(tmp_path, CALLED, more)
    adapter.prepare(CASE, "cpu", adapter.inputs(0, CASE))
    replay = adapter.batch(3)
    with pytest.raises(AdapterError, match=r"answer to 'replay'|not JSON compliant"):
        replay()


def test_a_case_is_passed_as_it_is(tmp_path: Path) -> None:
    more = """
    fields = (Field("size"), Field("mode", choices=("a", "b"), default="a"))

    def fault(self, case: Case):
        return f"{case.kernel} {case.id} {case.size} {case.mode}" if case.mode == "b" else None
    """
    adapter = adapter_of(tmp_path, TWICE, more)
    cases = [case_of("twice", adapter.fields, {"size": 4, "mode": mode}) for mode in ("a", "b")]
    assert adapter.fields[1] == Field("mode", choices=("a", "b"), default="a")
    assert adapter.faults(cases) == [None, "twice twice_size4_mode-b 4 b"]
    assert isinstance(cases[0], Case)


PYTHON_SOURCE = """
import gc
from fmha.harness.worker.subjects.kernel import Kernel
for kernel in [item for item in gc.get_objects() if isinstance(item, Kernel)]:
    type(kernel).reference = lambda self, case, inputs: {"y": 0.0 * inputs["x"]}
ENTRY = "twice"
"""


@pytest.mark.parametrize("apart", [True, False])
def test_a_kernels_own_python_is_not_where_the_reference_is(tmp_path: Path, apart: bool) -> None:
    """A source in Python, as Triton's, is imported to build and to launch. The adapter is the judge's, the source the
    commit's; here it changes what it finds."""
    judge, commit = tmp_path / "judge", tmp_path / "commit"
    judge.mkdir()
    commit.mkdir()
    more = """
    source = "kernel.py"

    def compile(self, case, arch):
        return ""

    def build(self, case, arch):
        import runpy
        return Build(runpy.run_path(self.root / self.source)["ENTRY"])
    """
    (judge / "kernel.py").write_text('ENTRY = "of_the_judge"\n' if apart else PYTHON_SOURCE)
    (commit / "kernel.py").write_text(PYTHON_SOURCE)
    adapter = adapter_of(judge, TWICE, more)
    if apart:
        adapter.built_in(commit)
    (commit / "adapter.py").write_text("raise ValueError('the commit has no say')\n")
    assert adapter.build(CASE, "sm_90a").entry == "twice"
    inputs = adapter.inputs(0, CASE)
    assert list(adapter.reference(CASE, inputs)["y"]) == list(2 * inputs["x"].astype(np.float64))


def test_another_commits_build_is_not_where_the_reference_is_either(tmp_path: Path) -> None:
    """Of a .cu nothing is imported, but what a build reads of the commit's tree is the commit's."""
    (commit := tmp_path / "commit").mkdir()
    adapter = adapter_of(tmp_path, TWICE)
    assert adapter.build(CASE, "sm_90a").entry == "twice"
    assert adapter._of_kernel is None, "one process is enough for a repository's own kernel"
    adapter.built_in(commit)
    assert adapter.build(CASE, "sm_90a").entry == "twice"
    assert adapter._of_kernel is not None


# Both warps store 1 to y[0], and nothing orders the two.
SAME = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry twice(.param .u64 x, .param .u64 y)
{
    .reg .f32 %f<2>;
    .reg .b64 %d<2>;
    ld.param.u64 %d0, [y];
    mov.f32 %f0, 0f3F800000;
    st.global.f32 [%d0], %f0;
    ret;
}
"""


def test_an_adapter_chooses_the_profile(tmp_path: Path) -> None:
    more = "def launches(self, case):\n    return [Launch((1, 1, 1), (64, 1, 1), ['x', 'y'])]\n"
    case = case_of("twice", (Field("size"),), {"size": 1})
    for profile, rules in (("strict", ["race"]), ("lenient", [])):
        subject = Declared(adapter_of(tmp_path, TWICE, more, profile=profile))
        (tmp_path / "same.ptx").write_text(SAME)
        variant, device = subject.variant_for(case, "sm_90a"), EmulatorDevice(0, "realistic")
        assert not isinstance(variant, str)
        module = device.load(tmp_path / "same.ptx")
        report = subject.run(device, module, variant, case, subject.inputs(0, case)).report
        assert [finding.rule for finding in report.findings] == rules
        assert report.stats.get("profile") == (profile if profile == "lenient" else None)


def test_a_profile_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="profile: 'loose' is not one of strict, lenient"):
        _ = adapter_of(tmp_path, TWICE, profile="loose").description
    method = "def profile(self):\n    return 'strict'\n"
    with pytest.raises(AdapterError, match="profile: '<bound method "):
        _ = adapter_of(tmp_path, TWICE, method).description
