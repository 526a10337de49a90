"""Every command that looks on takes every way to name a launch: docs/reference/views.md has what is tried here."""

from __future__ import annotations

import ast
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from fmha.harness.cli.app import COMMANDS, application
from tests.forked import fmha
from tests.harness.support import git
from tests.pages import assert_shown
from tests.programs.program_rig import PTX_OF, built

HERE = Path(__file__).parent / "kernels"
# How a launch is named in one word or more, by the way; `{}` of a command's line is replaced by it.
WAYS: Final[Mapping[str, str]] = {
    "a configuration of ours": "hd64_t1_sk256_splits2",
    "a configuration of one's own": "rmsnorm_rows4_columns256",
    "PTX with launch.yaml": "kernel.ptx --launch launch.yaml",
    "a program": "-- ./program 1000",
    "a Python script": "-- python script.py",
}
CLI = Path(__file__).parents[2] / "harness/cli"


def looks(command: str) -> Iterator[str]:
    """The command, or the commands beneath it, whose functions take `launch: Which` of naming.py."""
    for node in ast.parse((CLI / f"{command.replace('-', '_')}.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and any(
            ast.unparse(at.annotation) == "Which" for at in node.args.args if at.annotation
        ):
            yield command if node.name == "command" else f"{command} {node.name}"


LOOKS: Final = tuple(look for command in COMMANDS for look in looks(command))
# Commands that take no such name, and why.
OTHERS: Final[Mapping[str, str]] = {
    "run-matrix, regress, watch": "a run judges configurations of matrix.yaml: a number needs a reference and a gate",
    "bisect, compare, history, report, publish, results, baseline": "they read the archive, which has configurations",
    "bench": "it times attention kernels beside other libraries' on a GPU",
    "docs": "it prints pages",
    "lock": "it is of packages",
    "mcp": "it serves commands to a program: its tools name configurations and files of PTX",
    "calibrate": "it times small kernels of its own on a GPU",
    "diag descriptor, diag tensormap, diag probe": "they are of a value, of a file, and of small kernels of their own",
}
_NEEDS_TMEM: Final = "the launch executes no tcgen05.mma, and tensor memory is of those"
_NEEDS_BARRIER: Final = "the launch uses no mbarrier"
SCRIPT = """
import torch, triton, triton.language as tl
@triton.jit
def add(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)
x, y = torch.zeros(1000), torch.ones(1000)
print("from the script")
add[(4,)](x, y, 1000, B=256)
add[(2,)](x, y, 500, B=256)
"""
PROGRAM = """
#include <cstdio>
#include <cstdlib>
__global__ void scale(float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= a;
}
template <typename T> __global__ void add(T *x, const T *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += y[i];
}
int main(int count, char **words) {
    int n = atoi(words[1]);
    float *x, *y;
    cudaMalloc(&x, n * 4), cudaMalloc(&y, n * 4), cudaMemset(x, 0, n * 4), cudaMemset(y, 0, n * 4);
    printf("from the program\\n");
    scale<<<4, 256>>>(x, 2.f, n);
    add<float><<<4, 256>>>(x, y, n);
    return cudaDeviceSynchronize();
}
"""


def line_of(look: str, way: str) -> list[str]:
    """The command line, without fmha."""
    if look == "diff-run":
        if way == "PTX with launch.yaml":
            return shlex.split("diff-run kernel.ptx kernel.ptx+late --launch launch.yaml")
        word = WAYS[way].removeprefix("-- ")
        return ["diff-run", word, f"{word}+late"]
    more = {"debug": " --script session.txt"}.get(look, "")
    return shlex.split(f"{look}{more} {WAYS[way]}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of one's own in which nothing is committed, with a file of PTX, a program and a script beside it."""
    root = tmp_path_factory.mktemp("views")
    git(root, "init", "-q")
    assert fmha("init", "--example", "rmsnorm", "--arch", "sm_100a", cwd=root).returncode == 0
    shutil.copy(HERE / "early.ptx", root / "kernel.ptx")
    shutil.copy(HERE / "early.yaml", root / "launch.yaml")
    (root / "script.py").write_text(SCRIPT)
    (root / "session.txt").write_text("step 3\nback\nwhere\nquit\n")
    source = root / "program.cu"
    source.write_text(PROGRAM)
    built(root, source, PTX_OF.format("100a"), PTX_OF.format("90a"))
    return root


def cells() -> Iterator[object]:
    for look in LOOKS:
        for way in WAYS:
            marks = [pytest.mark.nvcc]
            marks += [pytest.mark.triton] if way == "a Python script" else []
            yield pytest.param(look, way, marks=marks)


@pytest.mark.slow
@pytest.mark.xdist_group("views")
@pytest.mark.parametrize(("look", "way"), [*cells()])
def test_every_command_takes_every_way(folder: Path, tmp_path: Path, look: str, way: str) -> None:
    where = tmp_path if way == "a configuration of ours" else folder  # an empty folder
    shutil.copy(folder / "session.txt", tmp_path)
    done = fmha(*line_of(look, way), cwd=where, env={**os.environ, "FMHA_DEBUG": "0"})
    assert "Traceback" not in done.stderr
    lacks = {"diag tmem": _NEEDS_TMEM, "diag barriers": _NEEDS_BARRIER}.get(look)
    if lacks and lacks in done.stderr:  # a kernel without such things has nothing to show, whatever it is named by
        assert done.returncode == 2
        return
    races = way == "PTX with launch.yaml" and look == "emulate"
    assert done.returncode == (1 if races else 0), done.stderr
    assert done.stdout
    if look != "emulate":
        assert "from the" not in done.stdout, "what a program prints is not what is said of it"


def test_the_page_has_what_was_tried(repository: Path) -> None:
    rows = ["| | " + " | ".join(WAYS) + " |", "|---" * (len(WAYS) + 1) + "|"]
    for look in LOOKS:
        rows.append(f"| `fmha {look}` | " + " | ".join(f"`{shlex.join(line_of(look, way))}`" for way in WAYS) + " |")
    assert_shown(repository / "docs/reference/views.md", "views", "\n".join(rows))
    others = ["| | no launch is named to it |", "|---|---|", *(f"| {who} | {why} |" for who, why in OTHERS.items())]
    assert_shown(repository / "docs/reference/views.md", "others", "\n".join(others))


def test_no_command_is_left_out_of_the_page() -> None:
    told = {word for names in (*LOOKS, *OTHERS) for name in names.split(", ") for word in [name.split()[0]]}
    hosts = {"init", "hosts", "attach", "ps", "logs", "cancel", "clean", "doctor"}
    assert told | hosts == set(COMMANDS), "a new command takes `launch: Which`, or goes into OTHERS"
    assert application()


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.xdist_group("views")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("budget --launch 'add<double>' -- ./program 9", "--launch: 'add<double>' is of no launch; there are 1 scale"),
        ("budget --launch 3 -- ./program 9", "--launch: there is no launch 3; there are 1 scale, 2 add<float>"),
        ("budget hd64_t1_sk128", "hd64_t1_sk128: no kernel is named so; names begin with one of rmsnorm"),
        (
            "budget --launch nosuch -- ./program 9",
            "--launch: 'nosuch' is of no launch; there are 1 scale, 2 add<float>",
        ),
        ("budget --launch _Z -- ./program 9", "--launch: '_Z' is of several launches; there are 1 scale, 2 add<float>"),
        ("budget kernel.ptx", "kernel.ptx: a file of PTX needs its launch; give --launch LAUNCH.yaml"),
        (
            "budget ./program 9",
            "'9': one kernel is looked at, ./program; a program and its arguments stand ",
        ),
        ("budget nosuch/kernel", "nosuch/kernel: there is no such file"),
        ("budget", "nothing is named; name a configuration"),
        ("diff-run kernel.ptx@HEAD kernel.ptx --launch launch.yaml", "a file of PTX is of no commit"),
        ("diff-run ./program@HEAD ./program", "./program@HEAD: a program is of no commit"),
        ("trace kernel.ptx --launch launch.yaml --gpu mi300", "--gpu: 'mi300' is not one of"),
        ("roofline --svg x.svg rmsnorm_rows4_columns256", "--svg: its axes are a call's bytes and products"),
        ("debug --json rmsnorm_rows4_columns256", "--json: who types commands reads their answers; give --script"),
    ],
)
def test_what_cannot_be_is_one_sentence(folder: Path, words: str, said: str) -> None:
    done = fmha(*shlex.split(words), cwd=folder)
    assert done.returncode == 2
    assert said in done.stderr.splitlines()[-1]


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.xdist_group("views")
@pytest.mark.parametrize("way", ["a configuration of ours", "a configuration of one's own", "a program"])
def test_a_launch_that_is_written_runs_alike(folder: Path, tmp_path: Path, way: str) -> None:
    """With the same memory at the same addresses it executes the same instructions."""
    words, where = shlex.split(WAYS[way]), tmp_path if way == "a configuration of ours" else folder
    listed = fmha("launches", "--write", str(tmp_path / "w"), "--json", "--launch", "1", *words, cwd=where)
    assert listed.returncode == 0, listed.stderr
    found = json.loads(listed.stdout)
    assert found["launches"][0]["number"] == 1
    assert set(found["launches"][0]) >= {"entry", "grid", "block", "cluster", "shared_bytes", "arguments"}
    ran = fmha("emulate", "--json", "--launch", "launch.yaml", "kernel.ptx", cwd=tmp_path / "w")
    assert ran.returncode == 0, ran.stdout
    alone = json.loads(ran.stdout)["stats"]["warp_instructions"]
    seen = json.loads(fmha("emulate", "--json", *words, cwd=where).stdout)
    assert alone == seen["launches"][0]["stats"]["warp_instructions"]


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.xdist_group("views")
def test_a_configuration_of_ones_own_at_a_commit(folder: Path) -> None:
    """The adapter and the source of that commit are what is built there."""
    own = folder / "committed"
    own.mkdir()
    git(own, "init", "-q")
    for name in ("fmha_kernels.py", "matrix.yaml", "rmsnorm.cu"):
        shutil.copy(folder / name, own)
    git(own, "add", ".")
    git(own, "commit", "-q", "-m", "first")
    source = (own / "rmsnorm.cu").read_text()
    assert "EPSILON" in (own / "fmha_kernels.py").read_text()
    (own / "rmsnorm.cu").write_text(source.replace("rsqrtf(", "1.0f + rsqrtf("))
    assert (own / "rmsnorm.cu").read_text() != source
    name = WAYS["a configuration of one's own"]
    assert fmha("trace", name, cwd=own).stdout.startswith("wrote ")
    status = subprocess.check_output(["git", "status", "--porcelain"], cwd=own, text=True)
    assert status == " M rmsnorm.cu\n", "what fmha writes unasked makes no tree differ from its commit"
    done = fmha("diff-run", f"{name}@HEAD", name, cwd=own)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("the first value that differs: ")


def test_completion_offers_files_and_configurations(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fmha.harness.cli import completion

    monkeypatch.chdir(folder)
    assert completion.launches("k") == ["kernel.ptx"]
    assert completion.launches("./pro") == ["./program"]
    monkeypatch.chdir(Path(__file__).parents[2])
    assert "hd64_t32_sk384" in completion.launches("hd64_t32_sk3")


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.xdist_group("views")
def test_json_of_every_look(folder: Path) -> None:
    """One object, whatever the program prints."""
    for look in LOOKS:
        if look in ("diag tmem", "diag barriers"):
            continue
        done = fmha(*_with_json(line_of(look, "a program")), cwd=folder)
        assert done.returncode == 0, done.stderr
        assert isinstance(json.loads(done.stdout), dict), look


def _with_json(line: list[str]) -> list[str]:
    """`--json` behind the command's name."""
    at = 2 if line[0] == "diag" else 1
    return [*line[:at], "--json", *line[at:]]
