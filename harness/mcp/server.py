"""The tools, over the official SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from mcp.server.mcpserver import MCPServer
from pydantic import Field

from fmha.harness.errors import FmhaError, UserError
from fmha.harness.mcp.commands import Commands, Done
from fmha.harness.mcp.tool_answers import bounded, verdict

INSTRUCTIONS: Final = """Judge CUDA, Triton and CuTe DSL kernels without a GPU. Begin with `judge`: it builds the
kernels of matrix.yaml in this repository, runs them on an emulator, compares outputs with a float64 reference, and
reports races and other hazards with their source lines. Ask `explain` what a finding's rule means and what to do. Mend
the source, and judge again until the verdict is PASS. `trace` and `budget` say what takes the time and what a
multiprocessor holds."""

Kernel = Annotated[
    str, Field(description="A case as `judge` prints it, e.g. rmsnorm_rows8_columns256; or a .ptx file.")
]
Launch = Annotated[str, Field(description="For a .ptx file its launch.yaml; else the number or entry of a launch.")]
MOST_COMMANDS: Final = 50


def server(root: Path, seconds: float) -> MCPServer[Any]:
    """All tools, for the repository at `root`; none takes longer than `seconds`."""
    ours = Commands(root, seconds)
    made: MCPServer[Any] = MCPServer("fmha", instructions=INSTRUCTIONS, log_level="ERROR")

    @made.tool()
    async def judge(
        case: Annotated[str, Field(description="One case in place of a suite.")] = "",
        suite: Annotated[str, Field(description="Suites of matrix.yaml, with commas; the default one if empty.")] = "",
        filter: Annotated[str, Field(description="A part of the suite, e.g. rows=4|8,columns=256.")] = "",  # noqa: A002
    ) -> dict[str, Any]:
        """Build and run the kernels of matrix.yaml on the emulator: PASS, or what is wrong and where."""
        given = {"case": case, "suite": suite, "filter": filter}

        def ask() -> Mapping[str, Any]:
            words = [f"--{name}={ours.word(name, value)}" for name, value in given.items() if value]
            done = ours.run("run-matrix", "--quiet", "--host=emulator", *words)
            return verdict(done.said) if _is(done, "verdict") else _failed(done)

        return await _answer(ask)

    @made.tool()
    async def emulate(
        kernel: Kernel,
        launch: Launch = "",
        schedules: Annotated[int, Field(ge=1, le=1000, description="How many schedules, of a .ptx file.")] = 1,
    ) -> dict[str, Any]:
        """Run one launch on the emulator: hazards, and outputs that are wrong."""

        def ask() -> Mapping[str, Any]:
            words, ptx = ours.kernel(kernel, launch)
            more = [f"--schedules={schedules}"] if schedules > 1 else []
            return _plain(ours.run("emulate", *words, *more, ptx=ptx))

        return await _answer(ask)

    @made.tool()
    async def explain(rule: Annotated[str, Field(description="A finding's rule, e.g. race.")]) -> dict[str, Any]:
        """What a hazard rule means, where the PTX ISA has it, and what to do."""

        def ask() -> Mapping[str, Any]:
            from fmha.emulator.rules import RULES

            if rule not in RULES:
                raise UserError(f"there is no rule {rule[:60]!r}", next_step=f"one of {', '.join(sorted(RULES))}")
            found = RULES[rule]
            return {"rule": rule, **{name: str(getattr(found, name)) for name in _TOLD if getattr(found, name)}}

        return await _answer(ask)

    @made.tool()
    async def trace(kernel: Kernel, launch: Launch = "") -> dict[str, Any]:
        """Model the time of a launch on an H200 or B200: microseconds, what is busy, and the critical path by cause."""

        def ask() -> Mapping[str, Any]:
            words, ptx = ours.kernel(kernel, launch)
            if ptx:
                raise UserError("a timeline is drawn of a case of matrix.yaml", next_step="declare the kernel there")
            with ours.file_of([]) as written:
                done = ours.run("trace", *words, f"--output={written}")
            return {name: value for name, value in _plain(done).items() if name not in ("output", "svg")}

        return await _answer(ask)

    @made.tool()
    async def diag(kernel: Kernel, what: Literal["smem", "tmem", "barriers"], launch: Launch = "") -> dict[str, Any]:
        """Layouts and bank conflicts of shared memory, the layout of tensor memory, or who waits at which mbarrier."""

        def ask() -> Mapping[str, Any]:
            words, ptx = ours.kernel(kernel, launch)
            return _plain(ours.run("diag", what, *words, ptx=ptx))

        return await _answer(ask)

    @made.tool()
    async def budget(kernel: Kernel, launch: Launch = "", what_if: dict[str, int] | None = None) -> dict[str, Any]:
        """Registers, shared and tensor memory, and how many CTAs a multiprocessor holds; also if it took less, e.g.
        what_if {"registers": 128}."""

        def ask() -> Mapping[str, Any]:
            words, ptx = ours.kernel(kernel, launch)
            more = [f"--what-if={ours.word('what_if', name)}={value}" for name, value in (what_if or {}).items()]
            return _plain(ours.run("budget", *words, *more, ptx=ptx))

        return await _answer(ask)

    @made.tool()
    async def debug(kernel: Kernel, commands: list[str], launch: Launch = "") -> dict[str, Any]:
        """Stop a launch where it goes wrong and look at it, by a debugger's commands in order; ["help"] lists them."""

        def ask() -> Mapping[str, Any]:
            words, ptx = ours.kernel(kernel, launch)
            if len(commands) > MOST_COMMANDS or any(len(line) > 200 or "\n" in line for line in commands):
                raise UserError(f"debug takes at most {MOST_COMMANDS} commands of 200 characters, a line each")
            if ptx:
                raise UserError("what is debugged is a case of matrix.yaml", next_step="declare the kernel there")
            with ours.file_of(commands) as script:
                return _plain(ours.run("debug", *words, f"--script={script}"))

        return await _answer(ask)

    return made


_TOLD: Final = ("section", "meaning", "remedy", "severity")


async def _answer(ask: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """What was asked for, bounded; an error is an answer that says what, where and what next."""
    try:
        return bounded(await asyncio.to_thread(ask))
    except FmhaError as error:
        said = {"error": error.what, "where": error.where, "next_step": error.next_step}
        return bounded({name: value for name, value in said.items() if value})


def _is(done: Done, field: str) -> bool:
    return isinstance(done.said, dict) and field in done.said


def _plain(done: Done) -> Mapping[str, Any]:
    return {"exit_code": done.code, **done.said} if isinstance(done.said, dict) else _failed(done)


def _failed(done: Done) -> Mapping[str, Any]:
    return {"error": done.words or "it ended without a word", "exit_code": done.code}
