"""What an adapter's process has compiled while a run was planned is not compiled again, as long as what it has read is
still there as it was."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fmha.harness.contract.protocol import BuildResult, Variant
from fmha.harness.isolate import isolation
from fmha.harness.judge.case import Case, parse_case
from fmha.harness.worker.compilers.build_kernels import build_variants
from fmha.harness.worker.subjects.adapter import Adapter
from fmha.harness.worker.subjects.declared import Declared

pytestmark = pytest.mark.nvcc

ARCH = "sm_90a"
# As Triton's kernels do: `build` compiles, for the entry's name and the shared memory, and keeps what it has made. The
# PTX says which process has made it.
ADAPTER = """
import os
import subprocess
import sys
from pathlib import Path
import fmha
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import helper
import package.part

class Own(fmha.Kernel):
    source = "own.py"
    sources = ("seen.txt",)  # which nobody hears of who listens to this process
    fields = (fmha.Field("n"),)

    def made(self, case):
        if not hasattr(self, "_made"):
            self._made = {}
        if case.n not in self._made:
            assert Path(os.environ["TMPDIR"]).is_dir()  # of this process alone: the next one has another
            value = case.n + int((HERE / "data.txt").read_text()) + 1000 * (HERE / "tuned").exists()
            value += helper.VALUE + package.part.VALUE + int(os.environ.get("TRITON_VALUE", "0"))
            value += int(subprocess.run(["cat", str(HERE / "seen.txt")], capture_output=True, check=True).stdout)
            value += sum(map(int, os.listdir(HERE / "tables")))
            value += int((HERE / "link.txt").read_text()) + int((HERE / "conf/value.txt").read_text())
            self._made[case.n] = PTX.replace("VALUE", str(value)).replace("PROCESS", str(os.getpid()))
        return self._made[case.n]

    def build(self, case, arch):
        self.made(case)
        return fmha.Build("probe", {"N": case.n})

    def compile(self, case, arch):
        return self.made(case)

    def at_hand(self, case, arch):
        return self._made.get(case.n) if hasattr(self, "_made") else None

    def inputs(self, case, random): return {}
    def outputs(self, case): return {"y": fmha.Output((1,), "i32")}
    def scratch(self, case): return {"kept": fmha.Output((case.n,))}
    def launches(self, case): return [fmha.Launch((case.n, 1, 1), (1, 1, 1), ["y"])]
    def reference(self, case, inputs): return {}

PTX = '''
// made by PROCESS
.version 8.0
.target sm_90a
.address_size 64
.visible .entry probe(.param .u64 p) {
  .reg .b64 %rd<2>;
  .reg .b32 %r<2>;
  ld.param.u64 %rd1, [p];
  mov.b32 %r1, VALUE;
  st.global.b32 [%rd1], %r1;
  ret;
}
'''
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose adapter reads in all the ways that there are, and sums up what it has read."""
    folder = tmp_path / "own"
    files = {"own.py": ADAPTER, "data.txt": "200\n", "helper.py": "VALUE = 0\n", "seen.txt": "0\n", "tables/0": ""}
    files |= {"old.txt": "0\n", "conf/value.txt": "0\n"}
    files |= {"../packages/package/__init__.py": "", "../packages/package/part.py": "VALUE = 0\n"}
    folder.mkdir()
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "link.txt").symlink_to("old.txt")
    found = [str(tmp_path / "packages"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, found)))
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "packages")])
    return folder


@pytest.fixture
def adapter(root: Path) -> Iterator[Adapter]:
    made = Adapter(root, "own.py:Own", "own", limit_seconds=120.0, plans=True)
    yield made
    made.close()


def planned(adapter: Adapter, n: int = 5) -> Variant:
    kernel = Declared(adapter)
    variant = kernel.variant_for(adapter_case(adapter, n), ARCH)
    assert isinstance(variant, Variant)
    return variant


def adapter_case(adapter: Adapter, n: int) -> Case:
    return parse_case("own", adapter.fields, f"own_n{n}")


def built(adapter: Adapter, variant: Variant, root: Path, said: list[str] | None = None) -> BuildResult:
    (result,) = build_variants(
        root, [variant], root.parent / "cache", 300, 1, (said if said is not None else []).append, None, adapter.at_hand
    )
    assert result.error is None, result.error
    return result


def stored(result: BuildResult) -> int:
    (value,) = re.findall(r"mov\.b32 %r1, (\d+);", Path(result.ptx).read_text())
    return int(value)


def maker(result: BuildResult) -> str:
    return re.findall(r"made by (\d+)", Path(result.ptx).read_text())[0]


def test_what_was_compiled_while_planning_is_not_compiled_again(root: Path, adapter: Adapter) -> None:
    variants = [planned(adapter, n) for n in (5, 6)]
    results = [built(adapter, variant, root) for variant in variants]
    assert [stored(result) for result in results] == [205, 206]
    assert len({maker(result) for result in results}) == 1  # one process, of which the build has started none
    assert all(result.processor_seconds is not None and result.processor_seconds > 0 for result in results)


CHANGES = {
    "a file that was read": ("data.txt", "300\n", 305),
    "a file that was looked for in vain": ("tuned", "", 1205),
    "the adapter": ("own.py", ADAPTER.replace("case.n +", "case.n + 10000 +"), 10205),
    "a helper module": ("helper.py", "VALUE = 20000\n", 20205),
    "a package that comes earlier": ("helper/__init__.py", "VALUE = 30000\n", 30205),
    "a package of the environment": ("../packages/package/part.py", "VALUE = 40000\n", 40205),
    "what a program that is started reads": ("seen.txt", "50000\n", 50205),
    "what is in a folder": ("tables/60000", "", 60205),
}


def written(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text(text)


@pytest.mark.parametrize("change", CHANGES)
def test_what_has_changed_since_the_plan_is_compiled_anew(root: Path, adapter: Adapter, change: str) -> None:
    variant = planned(adapter)
    name, text, wanted = CHANGES[change]
    written(root, name, text)
    assert stored(built(adapter, variant, root)) == wanted
    adapter.hold_planned()
    assert adapter.planned(["own_n5"]) == {}, "its launches may be others as well"


# What has the times of long ago and comes to a name that was read.
MOVES = {
    "a link leads elsewhere": (("link.txt", "old.txt", "new.txt"), 70205),
    "another folder is moved there": (("conf", "conf.old", "conf.new"), 80205),
    "another file is moved there": (("seen.txt", "seen.old", "seen.new"), 90205),
}


@pytest.mark.parametrize("move", MOVES)
def test_what_is_older_than_the_plan_and_comes_after_it_is_compiled_anew(root: Path, tmp_path: Path, move: str) -> None:
    (name, old, new), wanted = MOVES[move]
    (root / "new.txt").write_text("70000\n")
    (root / "conf.new").mkdir()
    (root / "conf.new/value.txt").write_text("80000\n")
    (root / "seen.new").write_text("90000\n")
    adapter = Adapter(root, "own.py:Own", "own", limit_seconds=120.0, plans=True)
    variant = planned(adapter)
    if move == "a link leads elsewhere":
        (root / name).unlink()
        (root / name).symlink_to(new)
    else:
        (root / name).rename(root / old)
        (root / new).rename(root / name)
    try:
        assert stored(built(adapter, variant, root)) == wanted
    finally:
        adapter.close()


def test_another_variable_than_at_the_plan_compiles_anew(
    root: Path, adapter: Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant = planned(adapter)
    monkeypatch.setenv("TRITON_VALUE", "7")
    assert stored(built(adapter, variant, root)) == 212


def test_where_a_sandbox_is_required_the_whole_tree_counts(
    root: Path, adapter: Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process could read any of its files and not say so."""
    monkeypatch.setenv("FMHA_ISOLATION", "require")
    variants = [planned(adapter, n) for n in (5, 6)]
    first = built(adapter, variants[0], root)
    (root / "unread.bin").write_text("x")
    assert maker(built(adapter, variants[1], root)) != maker(first)


def test_a_file_that_has_gone_since_the_plan_is_missed(root: Path, adapter: Adapter) -> None:
    (root / "tuned").write_text("")
    variant = planned(adapter)
    (root / "tuned").unlink()
    assert stored(built(adapter, variant, root)) == 205


@pytest.mark.parametrize("mechanism", ["bubblewrap", "landlock"])
def test_what_was_compiled_is_taken_from_either_sandbox(
    root: Path, adapter: Adapter, monkeypatch: pytest.MonkeyPatch, mechanism: str
) -> None:
    monkeypatch.setenv("FMHA_ISOLATION", mechanism)
    if isolation(mechanism).mechanism != mechanism:
        pytest.skip(f"there is no {mechanism} here")
    results = [built(adapter, planned(adapter, n), root) for n in (5, 6)]
    assert len({maker(result) for result in results}) == 1


@pytest.mark.parametrize("change", CHANGES)
def test_what_the_planning_process_has_read_decides_whether_its_build_is_taken_again(
    root: Path, adapter: Adapter, change: str
) -> None:
    variant = planned(adapter)
    first = built(adapter, variant, root)
    adapter.close_kernel()
    again = built(adapter, variant, root)
    assert again.cached
    assert maker(again) == maker(first)
    name, text, wanted = CHANGES[change]
    written(root, name, text)
    changed = built(adapter, variant, root)
    assert not changed.cached
    assert stored(changed) == wanted


def test_the_planning_process_has_the_variables_of_a_compiler(
    root: Path, adapter: Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another variable would change a build and not show in its key."""
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    text = (root / "own.py").read_text().replace("case.n +", 'case.n + int(os.environ.get("OMP_NUM_THREADS", "0")) +')
    (root / "own.py").write_text(text)
    assert stored(built(adapter, planned(adapter), root)) == 205


LIES = {
    "a text that is none": "return 5",
    "half a character": r'return "\ud800"',
    "a path that is none": "says(read={'a\\0': None})",
    "half a path": r"says(read={'\ud800': None})",
    "no paths": "says(read=5)",
    "modules that are none": "says(modules={'a': 5})",
    "no PTX of its entry": 'return "// nothing"',
    "too much of it": 'return "x" * (20 << 20)',
    "an error": 'raise RuntimeError("no")',
    "an end": "os._exit(3)",
}


REACHED = """import fmha.harness.worker.compilers.reads
def says(**what):
    made = {"read": {}, "listed": {}, "modules": {}, "path": []} | what
    fmha.harness.worker.compilers.reads.Reading.said = lambda _: made
"""


@pytest.mark.parametrize("lie", LIES)
def test_a_planning_process_that_does_not_say_is_not_waited_for(root: Path, adapter: Adapter, lie: str) -> None:
    """It says so when it is planned and not when it is asked for: `compile`, in a process of its own, makes it."""
    truth = 'return self._made.get(case.n) if hasattr(self, "_made") else None'
    assert truth in ADAPTER
    asked = "self.asked = getattr(self, 'asked', 0) + 1"
    lying = f"{asked}\n        if self.asked > 1:\n            {LIES[lie]}\n        {truth}"
    text = ADAPTER.replace(truth, lying).replace("import helper\n", "import helper\n" + REACHED, 1)
    (root / "own.py").write_text(text)
    variant = planned(adapter)
    if lie == "no PTX of its entry":
        (result,) = build_variants(root, [variant], root.parent / "cache", 300, 1, _unheard, None, adapter.at_hand)
        assert result.error is not None
        return
    assert stored(built(adapter, variant, root)) == 205


def _unheard(text: str) -> None: ...


def test_an_adapter_whose_at_hand_fails_is_planned_all_the_same(root: Path, adapter: Adapter) -> None:
    text = ADAPTER.replace('return self._made.get(case.n) if hasattr(self, "_made") else None', "return 1 / 0")
    (root / "own.py").write_text(text)
    variant = planned(adapter)
    adapter.hold_planned()
    assert adapter.planned(["own_n5"]) == {}
    assert stored(built(adapter, variant, root)) == 205


def test_what_was_said_while_planning_is_not_asked_again(root: Path, adapter: Adapter) -> None:
    planned(adapter)
    assert adapter.planned(["own_n5"]) == {}, "not before it was looked at once more"
    adapter.hold_planned()
    said = adapter.planned(["own_n5", "own_n6"])
    assert set(said) == {"own_n5"}
    other = Adapter(root, "own.py:Own", "own", planned=said)
    case = adapter_case(adapter, 5)
    try:
        assert Declared(other).variant_for(case, ARCH) == planned(adapter)
        (launch,) = other.launches(case, ARCH)
        assert (launch.grid, launch.args) == ((5, 1, 1), ("y",))
        assert other.scratch(case)["kept"].shape == (5,)
        assert not other.asks_the_kernel
        (launch,) = other.launches(adapter_case(adapter, 6), ARCH)  # of which nothing was said
        assert launch.grid == (6, 1, 1)
        assert other.asks_the_kernel
    finally:
        other.close()


BAD: dict[str, Any] = {
    "no arch": {},
    "another arch": {"arch": "sm_100a", "launches": [], "build": {}, "scratch": 5},
    "no launches": {"arch": ARCH, "launches": 5, "build": 5, "scratch": 5},
    "no grid": {"arch": ARCH, "launches": [{"grid": "x"}], "build": {"entry": 7}, "scratch": {"kept": 1}},
}


@pytest.mark.parametrize("bad", BAD)
def test_what_is_no_answer_is_asked_for(root: Path, adapter: Adapter, bad: str) -> None:
    other = Adapter(root, "own.py:Own", "own", planned={"own_n5": BAD[bad]})
    try:
        case = adapter_case(adapter, 5)
        assert other.build(case, ARCH).entry == "probe"
        assert len(other.launches(case, ARCH)) == 1
        assert other.scratch(case)["kept"].shape == (5,)
    finally:
        other.close()


def test_no_process_is_started_for_what_is_at_hand(root: Path, adapter: Adapter) -> None:
    variant = planned(adapter)
    adapter.close_kernel()
    assert adapter.at_hand(variant) is None
    assert not adapter.asks_the_kernel
    assert maker(built(adapter, variant, root)) != str(os.getpid())
