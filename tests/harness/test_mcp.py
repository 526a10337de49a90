"""`fmha mcp` as a program meets it: the SDK's own client over standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.forked import fmha
from tests.harness.support import git

mcp = pytest.importorskip("mcp")
pytestmark = [pytest.mark.nvcc, pytest.mark.slow, pytest.mark.xdist_group("own-kernels")]
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def repository_of_ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("mcp")
    git(root, "init", "-q", "-b", "main")
    assert fmha("init", "--ci", "none", cwd=root).returncode == 0
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "ours")
    return root


def talk(root: Path, conversation: Any) -> Any:
    """What `conversation` makes of `ask(tool, **arguments)`, which gives a tool's structured answer."""
    command = [sys.executable, "-m", "fmha", "mcp"]
    # What finds fmha and its packages here; the SDK hands on a few variables alone.
    environment = dict(os.environ)

    async def through() -> Any:
        parameters = mcp.StdioServerParameters(command=command[0], args=command[1:], cwd=root, env=environment)
        async with mcp.Client(parameters) as client:

            async def ask(tool: str, **arguments: Any) -> dict[str, Any]:
                result = await client.call_tool(tool, arguments)
                assert not result.is_error, result
                found: dict[str, Any] = result.structured_content
                assert len(json.dumps(found)) < 13_000
                return found

            return await conversation(client, ask)

    return asyncio.run(through())


def test_a_planted_race_is_found_and_mended_by_the_tools_words(repository_of_ours: Path) -> None:
    """The loop of docs/use/mcp.md. Whoever mends it knows the source and what the tools say, and no more."""
    source = repository_of_ours / "rmsnorm.cu"
    right = source.read_text()
    source.write_text(right.replace("  __syncthreads();\n", "", 1))

    async def mend(client: Any, ask: Any) -> list[Any]:
        told = await ask("judge")
        assert (told["verdict"], told["wrong"][0]["status"]) == ("FAIL", "hazard")
        finding = next(item for item in told["wrong"][0]["findings"] if item["rule"] == "race")
        remedy = (await ask("explain", rule=finding["rule"]))["remedy"]
        assert "Put a bar.sync" in remedy
        # Between the two places that the finding names, below the one that wrote.
        wrote, read = (int(finding[name].rpartition(":")[2]) for name in ("other_source", "source"))
        assert wrote < read
        lines = source.read_text().split("\n")
        after = next(
            at for at in range(wrote, read) if lines[at - 1].startswith("  ") and lines[at - 1].rstrip()[-1] in ";}"
        )
        while after < read - 1 and not re.match(r" {2}\S", lines[after]):
            after += 1
        lines.insert(after, "  __syncthreads();")
        source.write_text("\n".join(lines))
        again = await ask("judge", case=told["wrong"][0]["case"])
        whole = await ask("judge")
        return [again["verdict"], whole["verdict"], whole["total"] - whole["passed"]]

    try:
        assert talk(repository_of_ours, mend) == ["PASS", "PASS", 0]
    finally:
        source.write_text(right)


TRANSPOSE = """// y = x^T: tiles of 32 by 32 go through shared memory, so that both sides are read in whole rows.
extern "C" __global__ void __launch_bounds__(256) transpose(const float* x, float* y, int n) {
  __shared__ float tile[32][32];
  const int column = threadIdx.x % 32, first = threadIdx.x / 32;
  for (int at = blockIdx.x * 32; at < n; at += gridDim.x * 32) {
    for (int row = first; row < 32; row += 8) tile[row][column] = x[(blockIdx.y * 32 + row) * n + at + column];
    __syncthreads();
    for (int row = first; row < 32; row += 8) y[(at + row) * n + blockIdx.y * 32 + column] = tile[column][row];
    __syncthreads();
  }
}
"""
ADAPTER = """from fmha import Build, Field, Kernel, Launch, Output


class Transpose(Kernel):
    source = "transpose.cu"
    fields = (Field("n", least=32),)

    def build(self, case, arch):
        return Build("transpose")

    def inputs(self, case, random):
        return {"x": random.standard_normal((case.n, case.n)).astype("float32")}

    def outputs(self, case):
        return {"y": Output((case.n, case.n))}

    def launches(self, case):
        return [Launch((1, case.n // 32, 1), (256, 1, 1), ["x", "y", case.n])]

    def reference(self, case, inputs):
        return {"y": inputs["x"].T.astype("float64")}
"""


def test_a_planted_slowness_is_found_and_mended_by_the_tools_words(repository_of_ours: Path, tmp_path: Path) -> None:
    """The second loop of docs/use/mcp.md. The kernel is right, and each warp reads a column of a tile from one bank."""
    git(tmp_path, "init", "-q", "-b", "main")
    source = tmp_path / "transpose.cu"
    source.write_text(TRANSPOSE)
    (tmp_path / "fmha_kernels.py").write_text(ADAPTER)
    text = (repository_of_ours / "matrix.yaml").read_text()
    text = text.replace("rmsnorm: fmha_kernels.py:RmsNorm", "transpose: fmha_kernels.py:Transpose")
    text = re.sub(r"(?s)suites:.*?\ngates:", "suites:\n  small: {axes: {n: [32, 256]}}\n\ngates:", text)
    text = re.sub(r"(?m)^  resources:.*\n", "", text).replace("rmsnorm_rows8_columns256", "transpose_n256")
    (tmp_path / "matrix.yaml").write_text(text)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "a transpose")

    async def mend(client: Any, ask: Any) -> dict[str, Any]:
        assert (await ask("judge"))["verdict"] == "PASS"  # nothing is wrong with it but its time
        before = await ask("trace", kernel="transpose_n256")
        # Of what a launch waits for on its critical path, the first that is the kernel's own to mend is shared memory.
        assert list(before["critical_path"])[:2] == ["memory", "shared"]
        said = (await ask("diag", kernel="transpose_n256", what="smem"))["lines"]
        worst = next(line for line in said if re.search(r"\((?!1\.00)[\d.]+ times\)", line))
        place = re.search(r"transpose\.cu:(\d+): ", worst)
        assert place is not None
        assert any("make each row of that array longer by one element" in line for line in said)
        # The array that the named line reads, one element longer a row.
        name = re.search(r"(\w+)\[\w+\]\[\w+\];", source.read_text().split("\n")[int(place[1]) - 1])
        assert name is not None
        longer = lambda found: f"{found[1]}[{int(found[2]) + 1}];"  # noqa: E731
        source.write_text(re.sub(rf"(__shared__ \w+ {name[1]}\[\d+\])\[(\d+)\];", longer, source.read_text()))
        after = await ask("trace", kernel="transpose_n256")
        told = (await ask("diag", kernel="transpose_n256", what="smem"))["lines"]
        return {
            "verdict": (await ask("judge"))["verdict"],
            "conflicts": [line for line in told if "more passes" in line],
            "quotient": after["call_us"] / before["call_us"],
        }

    found = talk(tmp_path, mend)
    assert (found["verdict"], found["conflicts"]) == ("PASS", [])
    assert found["quotient"] < 0.8


def test_what_bounds_a_kernel_is_told(repository_of_ours: Path) -> None:
    case = "rmsnorm_rows8_columns256"

    async def look(client: Any, ask: Any) -> list[dict[str, Any]]:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert tools == {"judge", "emulate", "explain", "trace", "diag", "budget", "debug"}
        return [
            await ask("budget", kernel=case, what_if={"registers": 255}),
            await ask("trace", kernel=case),
            await ask("diag", kernel=case, what="smem"),
            await ask("debug", kernel=case, commands=["step 3", "where", "quit"]),
            await ask("emulate", kernel=case),
        ]

    budget, trace, diag, debug, emulate = talk(repository_of_ours, look)
    assert budget["what_if"] == {"registers": 255}
    assert budget["occupancy"]["sm_90a"]["ctas"] < 16
    assert trace["critical_path"]
    assert diag["lines"]
    assert [item["command"] for item in debug["answers"]][-3:] == ["step 3", "where", "quit"]
    assert emulate["exit_code"] == 0


REFUSED: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("emulate", {"kernel": "--help"}, "is no name of a kernel"),
    ("emulate", {"kernel": "../kernel.ptx"}, "is no name of a kernel"),
    ("emulate", {"kernel": "away.ptx"}, "there is no file away.ptx below the root"),
    ("emulate", {"kernel": "rmsnorm_rows8_columns256", "launch": "/etc/passwd"}, "is no name of a kernel"),
    ("judge", {"case": "x --host far"}, "is no name of a kernel"),
    ("judge", {"suite": "nosuch"}, "nosuch"),
    ("explain", {"rule": "nosuch"}, "there is no rule 'nosuch'"),
    ("debug", {"kernel": "rmsnorm_rows8_columns256", "commands": ["a\nb"]}, "a line each"),
    ("trace", {"kernel": "kernel.ptx", "launch": "launch.yaml"}, "a case of matrix.yaml"),
    ("emulate", {"kernel": "kernel.ptx", "launch": "outside.yaml"}, "secret.npy"),
)


def test_a_file_of_ptx_runs_in_the_sandbox_and_what_is_refused_is_an_answer(
    repository_of_ours: Path, tmp_path: Path
) -> None:
    root = repository_of_ours
    shutil.copy(HERE.parent / "see/kernels" / "early.ptx", root / "kernel.ptx")
    shutil.copy(HERE.parent / "see/kernels" / "early.yaml", root / "launch.yaml")
    (root / "away.ptx").symlink_to(HERE.parent / "see/kernels" / "early.ptx")  # what is outside, by a link
    np.save(tmp_path / "secret.npy", np.arange(32, dtype=np.uint32))
    text = (root / "launch.yaml").read_text()
    (root / "outside.yaml").write_text(re.sub(r"fill: \w+", f"file: {tmp_path / 'secret.npy'}", text, count=1))

    async def ask_all(client: Any, ask: Any) -> list[dict[str, Any]]:
        given = [("emulate", {"kernel": "kernel.ptx", "launch": "launch.yaml"}, ""), *REFUSED]
        return [await ask(tool, **arguments) for tool, arguments, _ in given]

    ran, *answers = talk(root, ask_all)
    assert ran["exit_code"] in (0, 1)
    assert "error" not in ran
    for found, (tool, arguments, said) in zip(answers, REFUSED, strict=True):
        assert said in found.get("error", ""), (tool, arguments, found)
