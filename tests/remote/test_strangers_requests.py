"""Pull requests of strangers under the own steps of evidence.yml and regress.yml, against a real sshd: none is green
with a broken kernel, and nothing of one runs on the runner or on the host but in a sandbox.
docs/reference/pull-requests.md has what came of each.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from fmha.harness import isolate
from fmha.harness.errors import ExitCode
from tests.evidence.seeded_history import edit
from tests.remote.conftest import fresh_client
from tests.remote.job import HOST, MARK, SETUP, Job, opened
from tests.remote.server import Server

pytestmark = [pytest.mark.nvcc, pytest.mark.slow, pytest.mark.timeout(900)]
BROKEN = edit(r"(ptx::log2\((?:state\.)?sum\)) \* kLn2", r"\1")  # LSE in base 2
WRONG_NUMBERS = "lse_error is"


@dataclass(frozen=True)
class Request:
    """What a pull request changes, what then is said, and the exit code of the step `Matrix`. `inside` are the traps
    whose code does run, in a sandbox."""

    change: Callable[[Job, Path], object]
    words: str = WRONG_NUMBERS
    code: int = ExitCode.GATE_FAILED
    inside: tuple[str, ...] = ()
    message: str = "Faster"
    regress: tuple[str, int] | None = None  # words and code under regress.yml, where they are others
    force: tuple[str, ...] = ()


@pytest.fixture(scope="module")
def job(template: Path, server: Server, warm: None, repository: Path, public_folder: Path) -> Iterator[Job]:
    if isolate.isolation().mechanism == "none":
        pytest.skip(isolate.isolation().missing)
    folder = public_folder / "job"
    folder.mkdir()
    with fresh_client(template, server, folder) as client, opened(client, repository, folder) as made:
        yield made


def _prepend(path: Path, code: str) -> None:
    """Has a module run `code` when it is imported."""
    first, text = "from __future__ import annotations\n", path.read_text() if path.exists() else ""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.replace(first, first + code, 1) if first in text else code + text)


def _program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def _matrix(root: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = root / "matrix.yaml"
    matrix = yaml.safe_load(path.read_text())
    change(matrix)
    path.write_text(yaml.safe_dump(matrix, sort_keys=False))


def a_judge_in_the_tree(job: Job, root: Path) -> None:
    """A copy of the base's harness whose gates hold nothing, where fmha once kept judges."""
    BROKEN(root)
    for name in (job.base[:16], job.base):
        tree = root / ".fmha" / "judges" / name / "tree"
        for part in ("fmha", "harness"):
            shutil.copytree(root / part, tree / part, symlinks=True)
        shutil.copy(root / "matrix.yaml", tree / "matrix.yaml")
        gate = tree / "harness" / "judge" / "gate.py"
        gate.write_text(gate.read_text().replace("if _misses(gate, values)", "if False"))
        _prepend(gate, job.traps.code("judge-in-the-tree"))


def a_host_of_its_own(job: Job, root: Path) -> None:
    BROKEN(root)
    _program(root / "kernel" / "python3", job.traps.program("host-of-its-own", sys.executable))
    _matrix(root, lambda matrix: matrix["hosts"].update({HOST: {"kind": "local", "python": "kernel/python3"}}))


def a_harness_of_its_own(job: Job, root: Path) -> None:
    BROKEN(root)
    for name in ("stages/pipeline.py", "kernel_side/variants.py", "cli/__init__.py", "hosts/remote.py"):
        _prepend(root / "harness" / name, job.traps.code(f"harness-{Path(name).stem}"))


def another_address(job: Job, root: Path) -> None:
    """The host's section leads to another machine that the runner can log in to."""
    BROKEN(root)
    _matrix(root, lambda matrix: matrix["hosts"][HOST].update(alias="elsewhere", python="~/evil/python3"))


def links(job: Job, root: Path) -> None:
    """Where fmha reads and writes: a device that never ends, the runner's and the host's secrets, their homes."""
    BROKEN(root)
    shutil.rmtree(root / "results", ignore_errors=True)
    (root / "matrix.yaml").unlink()
    for name, target in {
        "matrix.yaml": "/dev/zero",
        ".fmha": job.home,
        "results": job.home,
        "kernel/common/secret.cuh": job.home / ".ssh" / "ci_key",
        "kernel/common/theirs.cuh": job.client.home / ".ssh" / "id",
        "emulator/zz": "/",
    }.items():
        (root / name).symlink_to(target)


def a_matrix_without_end(job: Job, root: Path) -> None:
    """Each suite is a list of an alias, and is ten thousand configurations."""
    BROKEN(root)
    grid = {"head_dim": [64], "t": list(range(1, 101)), "s_k": list(range(1, 101))}
    text = (root / "matrix.yaml").read_text()
    more = "".join(f"  s{number}: *large\n" for number in range(4000))
    text = text.replace("suites:\n", f"suites:\n  large: &large\n    axes: {grid}\n{more}", 1)
    (root / "matrix.yaml").write_text(text)


def everything_beside(job: Job, root: Path) -> None:
    """What programs take from the folder that they are started in, and what a checkout is set up by."""
    BROKEN(root)
    code = job.traps.code
    modules = ("sitecustomize", "usercustomize", "conftest", "setup", "pip", "yaml", "typer", "_virtualenv")
    for name in modules:
        _prepend(root / f"{name}.py", code(f"root-{name}"))
    for name in ("numpy", "pydantic", "json", "fmha", "emulator", "scripts"):
        _prepend(root / name / "__init__.py", code(f"root-{name}"))
    for name in (".ci/run", ".githooks/post-checkout", "bin/git", "git", "ssh", "python3", "nvcc", "ptxas", "bwrap"):
        _program(root / name, job.traps.program(f"root-{Path(name).name}", job.client.server.python))
    touch = f"touch {job.home}/{MARK}%s {job.client.home}/{MARK}%s"
    (root / "Makefile").write_text(f"install run:\n\t{touch % ('make', 'make')}\n")
    (root / SETUP).write_text(f"{touch % ('set-up', 'set-up')}\n{(root / SETUP).read_text()}")
    (root / "constraints.txt").write_text("# another\n")
    (root / "evil.pth").write_text("import sitecustomize\n")
    (root / "pyproject.toml").write_text("[build-system]\nbuild-backend = 'setup'\nbackend-path = ['.']\n")


def what_git_reads(job: Job, root: Path) -> None:
    """Attributes, hooks, configurations, and folders that look like a repository."""
    BROKEN(root)
    evil = f"sh -c 'touch {job.home}/{MARK}git {job.client.home}/{MARK}git'"
    config = f'[core]\n\tbare = true\n\tfsmonitor = {evil}\n\thooksPath = .\n[filter "x"]\n\tclean = {evil}\n'
    config += f'[diff "x"]\n\tcommand = {evil}\n\ttextconv = {evil}\n[alias]\n\tstatus = !{evil}\n'
    for folder in (root, root / "kernel", root / "harness" / "kernel_side"):
        (folder / "objects" / "pack").mkdir(parents=True)
        (folder / "refs").mkdir()
        for name, text in {
            "HEAD": "ref: refs/heads/main\n", "config": config, "objects/pack/x": "", "refs/x": "",
            ".gitconfig": config, ".lfsconfig": "[lfs]\n\turl = https://example.invalid/\n",
        }.items():  # fmt: skip
            (folder / name).write_text(text)
    for name in ("post-checkout", "post-index-change", "pre-push", "fsmonitor-watchman"):
        _program(root / name, f"#!/bin/sh\n{evil}\n")
    (root / "kernel" / ".gitattributes").write_text("* filter=x diff=x merge=x ident export-subst -text\n")


def a_submodule(job: Job, root: Path) -> None:
    BROKEN(root)
    evil = f"ext::sh -c touch% {job.home}/{MARK}submodule"
    (root / ".gitmodules").write_text(
        f'[submodule "../../../x"]\n\tpath = kernel/zz\n\turl = {evil}\n\tupdate = !touch {job.home}/{MARK}update\n'
    )
    added = ["git", "update-index", "--add", "--cacheinfo", f"160000,{job.base},kernel/zz"]
    (root / "kernel" / "zz").mkdir()
    subprocess.run(added, cwd=root, check=True)


COMMANDS = "\x1b]52;c;cHduZWQ=\x07\x1b[2J\n::set-output name=verdict::pass\n  ::stop-commands::x\n##[add-path]/evil\n"


def orders(job: Job, root: Path) -> None:
    """To the runner and to a terminal, in all that a request can have said."""
    kernel = root / "kernel" / "sm100" / "fmha_fwd.cu"
    said = COMMANDS.replace("\n", "\\n").replace("\x1b", "\\033").replace("\x07", "\\007")
    line = (
        '# 1 "\\n::error file=x::\\033[2J<script>alert(1)</script>##[group]"\n#error ::stop-commands::x ##[endgroup]\n'
    )
    kernel.write_text(f'{line}static_assert(false, "{said}");\n{kernel.read_text()}')
    (root / "kernel" / "a\n::error::name\n\x1b[2J##[debug].cu").write_text("\n")
    _prepend(root / "harness" / "kernel_side" / "variants.py", f"import sys\nsys.stderr.write({COMMANDS!r})\n")


def flags(job: Job, root: Path) -> None:
    """For nvcc and ptxas: files to write, programs to start."""
    BROKEN(root)
    _program(root / "kernel" / "cc", job.traps.program("host-compiler", job.client.server.python))
    path = root / "harness" / "kernel_side" / "recipe.py"
    places = [*job.traps.folders, job.client.home]
    wanted = [f'"-Xptxas=--output-file={place}/{MARK}ptxas"' for place in places]
    wanted += [f'"--dependency-output", "{place}/{MARK}depends", "-MD"' for place in places[:1]]
    wanted += ['"-ccbin", "kernel/cc"', '"--keep"', f'"--keep-dir", "{job.client.home}"']
    text = path.read_text()
    assert '"-O3"' in text
    path.write_text(text.replace('"-O3"', ", ".join(['"-O3"', *wanted])))


def secrets_in_a_kernel(job: Job, root: Path) -> None:
    """What a compiler cannot read as C++ it repeats in its messages."""
    kernel = root / "kernel" / "sm100" / "fmha_fwd.cu"
    included = "".join(f'#include "{path}"\n' for path in job.traps.secrets)
    kernel.write_text(f"{included}{kernel.read_text()}")


def messages_without_end(job: Job, root: Path) -> None:
    """A header that includes itself twice, to a depth of thirty, and is warned of each time."""
    again = '#if __INCLUDE_LEVEL__ < 30\n#include "again.cuh"\n#include "again.cuh"\n#endif\n'
    (root / "kernel" / "sm100" / "again.cuh").write_text(f"#warning again\n{again}")
    kernel = root / "kernel" / "sm100" / "fmha_fwd.cu"
    kernel.write_text(f'#include "again.cuh"\n{kernel.read_text()}')


def an_adapter(job: Job, root: Path) -> None:
    """A kernel with an adapter, named by the request's matrix.yaml, and hosts where one's own would be."""
    BROKEN(root)
    code = job.traps.code("adapter")
    (root / "evil.py").write_text(f"{code}\nimport fmha\n\nclass Evil(fmha.Kernel):\n    pass\n")
    own = {"hosts": {HOST: {"kind": "local", "python": "kernel/python3", "environment": {"setup": "touch was"}}}}
    for name in ("own.yaml", "hosts.yaml", ".fmha/hosts.yaml", ".config/fmha/hosts.yaml"):
        _program(root / name, yaml.safe_dump(own))

    def change(matrix: dict[str, Any]) -> None:
        matrix["kernels"] = {"ours": "fmha", "evil": "evil.py:Evil"}
        matrix["suites"]["good"] = {"kernel": "evil", "axes": {"n": [1]}}

    _matrix(root, change)


def a_verdict_of_its_own(job: Job, root: Path) -> None:
    """Everything that is asked what passes: gates, workflow, baseline, archive, and suites with nothing to run."""
    BROKEN(root)
    gate = root / "harness" / "judge" / "gate.py"
    _prepend(gate, job.traps.code("gate"))
    gate.write_text(gate.read_text().replace("if _misses(gate, values)", "if False"))
    workflow = root / ".github" / "workflows" / "evidence.yml"
    workflow.write_text(
        re.sub(r"\.\./base/\.venv/bin/fmha.*", f"touch {job.home}/{MARK}workflow", workflow.read_text())
    )
    record = next((job.client.root / "results").glob(f"*-{HOST}.json"))
    for folder in ("results", "results/baselines", "evidence"):
        (root / folder).mkdir(exist_ok=True)
        shutil.copy(record, root / folder)
    _matrix(root, lambda matrix: matrix["gates"]["default"].update(lse_error=10.0, bf16_lse_error=10.0))


def a_launcher(job: Job, root: Path) -> None:
    """What launches the kernel, on the host."""
    BROKEN(root)
    _prepend(root / "harness" / "kernel_side" / "launch.py", job.traps.code("launcher"))


def answers_of_its_own(job: Job, root: Path) -> None:
    """To whoever started it, by every descriptor of theirs that can be reached."""
    BROKEN(root)
    lie = """
import os
for parent in (os.getppid(), 1):
    for number in range(1, 12):
        try:
            with open(f"/proc/{parent}/fd/{number}", "w") as file:
                file.write('{"kind":"end"}\\n')
        except OSError:
            pass
"""
    _prepend(root / "harness" / "kernel_side" / "launch.py", lie)


def nothing_to_run(job: Job, root: Path) -> None:
    """The kernel's side says that there is a kernel for no configuration."""
    BROKEN(root)
    path = root / "harness" / "kernel_side" / "__main__.py"
    text = path.read_text()
    wanted = "    if isinstance(found, str):"
    assert wanted in text
    path.write_text(text.replace(wanted, f"    found = 'nothing to run'\n{wanted}"))


REQUESTS = {
    "a judge in the tree": Request(a_judge_in_the_tree, force=(".fmha/judges",)),
    "a host of its own": Request(a_host_of_its_own),
    "a harness of its own": Request(a_harness_of_its_own, inside=("harness-variants",)),
    "another address": Request(another_address),
    "links that lead out": Request(links, "links that lead out of it", ExitCode.USAGE, force=(".fmha", "results")),
    "a matrix without end": Request(a_matrix_without_end),
    "everything beside": Request(everything_beside, inside=("root-fmha",)),
    "what git reads": Request(what_git_reads),
    "a submodule": Request(a_submodule, "the commit has submodules", ExitCode.USAGE),
    "orders to whoever reads": Request(orders, "build-error", message=COMMANDS),
    "flags": Request(flags, "", inside=("host-compiler",)),
    "secrets in a kernel": Request(secrets_in_a_kernel, "build-error"),
    "messages without end": Request(messages_without_end, "bytes of messages, killed"),
    "an adapter": Request(an_adapter, inside=("adapter",), force=(".fmha",)),
    "a verdict of its own": Request(a_verdict_of_its_own, "judge changed: ", force=("results",)),
    "a launcher": Request(a_launcher, inside=("launcher",)),
    "answers of its own": Request(answers_of_its_own, "in a way that the judge cannot use"),
    "nothing to run": Request(
        nothing_to_run, "nothing to run", ExitCode.INCOMPLETE, regress=("2 not-run", ExitCode.GATE_FAILED)
    ),
}  # fmt: skip


REGRESS_BY_DAY = "a harness of its own"
BY_DAY = ("a judge in the tree", "a host of its own", "a harness of its own", "orders to whoever reads")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in BY_DAY else pytest.mark.nightly) for name in REQUESTS]
)
def test_it_is_red_and_touches_nothing(job: Job, name: str) -> None:
    _red_and_untouched(job, REQUESTS[name], "evidence", "Matrix")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == REGRESS_BY_DAY else pytest.mark.nightly) for name in REQUESTS]
)
def test_so_it_is_under_regress(job: Job, name: str) -> None:
    _red_and_untouched(job, REQUESTS[name], "regress", "Regress")
    comment = job.evidence / "comment.md"
    text = comment.read_text() if comment.exists() else ""
    assert all(line.isprintable() for line in text.splitlines())
    assert "<script>alert" not in text


def _red_and_untouched(job: Job, request: Request, workflow: str, step: str) -> None:
    sha = job.requested(lambda root: request.change(job, root), request.message, request.force)
    seen = job.carried_out(sha, workflow)
    other = request.regress if workflow == "regress" else None
    words, code = other or (request.words, request.code)
    assert job.traps.sprung() == []
    assert seen.codes[step] == code, seen.said
    assert words in seen.said
    assert "Traceback" not in seen.said
    assert "internal error" not in seen.said
    everything = seen.said + job.kept()
    assert set(re.findall(rf"{MARK}([a-z_-]+)\.", everything)) == set(request.inside)
    assert not [secret for secret in job.secrets() if secret in everything]
    _gives_no_orders(job, seen.said)


def _gives_no_orders(job: Job, said: str) -> None:
    """But for fmha's own annotations, which are one line each."""
    for line in said.splitlines():
        assert line.isprintable() or "\t" in line
        assert "##[" not in line
        assert not line.lstrip().startswith("::") or re.match(r"::error (file=[^,:]*,line=\d+,)?title=[^:]*::", line)
    page = job.evidence / "report.html"
    for text in (job.summary(), page.read_text() if page.exists() else ""):
        assert "<script>alert" not in text
        assert "\x1b" not in text


@pytest.mark.parametrize(("workflow", "step"), [("evidence", "Matrix"), ("regress", "Regress")])
def test_the_base_itself_is_green(job: Job, workflow: str, step: str) -> None:
    """Or red would prove nothing."""
    seen = job.carried_out(job.base, workflow)
    assert seen.codes == {step: ExitCode.PASS, "Report": 0}, seen.said
    assert job.traps.sprung() == []
    assert {"junit.xml", "report.html"} <= {path.name for path in job.evidence.iterdir()}


def test_the_traps_close(job: Job) -> None:
    """On the same code outside of a sandbox."""
    job.traps.sprung()
    done = subprocess.run([sys.executable, "-c", job.traps.code("control")], capture_output=True, text=True, check=True)
    assert all(secret in done.stderr for secret in job.traps.secrets.values())
    found = job.traps.sprung()
    assert len(found) == len(job.traps.folders) + len(job.traps.files) + 1, found
    assert job.traps.sprung() == []
