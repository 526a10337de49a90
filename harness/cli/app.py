"""The Typer application: global options and the list of commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fmha.harness.cli.dashes import Dashed

Exits = dict[int, str]

USAGE = "wrong usage or a wrong matrix.yaml"
MACHINERY = "the machinery failed: nothing was learned about the kernel"
VERDICT: Exits = {
    0: "every configuration passed",
    1: "a gate failed: wrong numbers, a hazard, a timeout, a crash or a kernel that does not build",
    2: USAGE,
    3: MACHINERY,
    4: "incomplete: something was not run, or the run was interrupted",
}
DONE: Exits = {0: "what was asked for was done", 2: USAGE, 3: "the machinery failed: a host, a file, git or the disk"}
ANSWERS: Exits = {0: "every host answered", 2: USAGE, 3: "a host did not answer, or the machinery failed"}

# Each is the module of that name here, in the order in which the help lists them: what it does, in a line, and what its
# exit codes mean. They are told without loading the module.
COMMANDS: Mapping[str, tuple[str, Exits]] = {
    "run-matrix": ("Build, run and gate a suite of matrix.yaml.", VERDICT),
    "docs": ("Print a page of the documentation, or list the pages.", DONE),
    "init": ("Write what a repository needs to have a kernel of its own judged.", DONE),
    "bench": ("Time the Hopper kernels beside SDPA, FlexAttention and Triton.", DONE),
    "emulate": (
        "Run a launch of any PTX kernel, a CUDA program or a Python script, on the emulator.",
        DONE
        | {
            0: "no hazard, and no compared output is wrong",
            1: "a hazard, a wrong output, or a script that fails; without a hazard, a program's own code stands",
            4: "something that a program does is not modelled, or its last launch was cut short",
        },
    ),
    "launches": ("List the launches of what is named: PTX, entry, grid, arguments; write one for emulate.", DONE),
    "coverage": (
        "Say which lines of a kernel its launches have not executed.",
        DONE | {0: "what was asked for was done, whatever is left out"},
    ),
    "diag": (
        "Show a kernel's layouts, bank conflicts, barriers and descriptors.",
        DONE | {1: "a descriptor or a tensor map is wrong"},
    ),
    "budget": ("Show what a kernel takes of a multiprocessor, and what if it took less.", DONE),
    "diff-run": (
        "Find the first instruction whose value differs between two launches.",
        DONE | {0: "no value differs", 1: "a value differs"},
    ),
    "debug": ("Stop a launch on the emulator where it goes wrong, and go on or back.", DONE),
    "regress": (
        "Run what the baseline ran, and say what got worse.",
        VERDICT | {0: "nothing got worse", 1: "something got worse, or a gate failed"},
    ),
    "bisect": (
        "Find the commit that made a regression.",
        DONE | {0: "one commit is to blame", 4: "several commits are left, some of which cannot be tried"},
    ),
    "baseline": ("The runs that regress compares with.", DONE | {4: VERDICT[4]}),
    "compare": ("Compare two runs: files, commits or hosts.", DONE),
    "history": ("A configuration's numbers over the archived runs.", DONE),
    "report": ("Write a run as one HTML file.", DONE),
    "publish": ("Write the archive as a site over commits.", DONE),
    "lock": ("Write what CI installs, each package with its digest.", DONE),
    "mcp": ("Serve judge, emulate, explain and other tools to a program that writes kernels.", DONE),
    "watch": ("Run the guard and what was touched after every save.", DONE),
    "roofline": ("What bounds a kernel on a GPU that is not there: modelled time and floors.", DONE),
    "calibrate": ("Measure the timing model's constants on the GPU of this machine.", DONE),
    "trace": ("A modelled timeline of one launch, for Perfetto, and its critical path.", DONE),
    "results": ("The archive: ls, show, verify, prune.", DONE | {1: "verify found a damaged record"}),
    "hosts": ("List the hosts of matrix.yaml, whether they answer, and who has their GPUs.", ANSWERS),
    "attach": ("Follow a run on a host elsewhere to its verdict.", VERDICT),
    "ps": ("List the runs on the hosts elsewhere.", ANSWERS),
    "logs": ("Print what a run on a host elsewhere wrote.", DONE),
    "cancel": ("End a run on a host elsewhere.", DONE),
    "clean": ("Remove old runs and caches from a host elsewhere.", DONE),
    "doctor": (
        "Say what is missing, here or on a host elsewhere.",
        {0: "nothing is missing", 2: USAGE, 3: "something is red, or the machinery failed"},
    ),
}


_MANNERS: Mapping[str, Any] = {
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


def _tell_exits(exits: Exits, formatter: Any) -> None:
    """As a list, whose lines are filled to the terminal's width and not broken by it."""
    with formatter.section("Exit codes"):
        formatter.write_dl([(str(code), exits[code]) for code in sorted(exits)])


@dataclass(frozen=True, slots=True)
class _Conversion:
    """In place of Typer's conversion of a parameter, which is built when it is needed: a default is what it is, and so
    is a text."""

    usual: Callable[[], Any]

    def __call__(self) -> _Conversion:
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        source = ctx.get_parameter_source(param.name)
        if (source is not None and source.name == "DEFAULT") or (
            type(value) is str and param.type_descriptor.annotation is str
        ):
            return value
        return self.usual().coerce(value, param=param, ctx=ctx)


class _Light:
    """A command whose parameters are converted where there is something to convert: Typer loads pydantic for each,
    given or not, and builds what checks it, which takes a tenth of a second."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            usual = getattr(param, "get_runtime_param", None)  # a Typer of before has none, and converts by itself
            if usual is not None and not isinstance(usual, _Conversion):
                param.get_runtime_param = _Conversion(usual)
        return params


class _Command(_Light, Dashed):
    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _tell_exits(COMMANDS[str(self.name)][1], formatter)


class _Group(_Light, TyperGroup):
    """Commands of a command, e.g. `results ls`."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _tell_exits(COMMANDS[ctx.info_name][1], formatter)


class _Commands(_Light, TyperGroup):
    """All commands; the module of one is loaded when that one is asked for, which saves half a second of the help."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            self.commands[cmd_name] = _load(cmd_name)
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in COMMANDS:
            for name in COMMANDS:  # Typer says which of those that it knows may have been meant
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, short) for name, (short, _) in COMMANDS.items()])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _tell_exits(VERDICT, formatter)


def application() -> typer.Typer:
    """The application, no command of which is loaded yet."""
    app = typer.Typer(
        name="fmha",
        cls=_Commands,
        help="Takes a kernel, in CUDA, Triton or CuTe DSL, to a verdict: on an emulator, or on a GPU.",
        no_args_is_help=True,
        **_MANNERS,
    )
    app.callback()(options)
    return app


def _load(name: str) -> Any:
    module = import_module(f"fmha.harness.cli.{name.replace('-', '_')}")
    outer = typer.Typer(add_completion=False, **_MANNERS)
    texts = {"help": module.HELP, "short_help": COMMANDS[name][0]}
    if not hasattr(module, "app"):
        outer.command(name=name, cls=_Command, **texts)(module.command)
        return typer.main.get_command(outer)
    outer.add_typer(module.app, name=name, cls=_Group, **texts)
    group: Any = typer.main.get_group(outer)
    return group.commands[name]


def _version(wanted: bool) -> None:
    if wanted:
        from fmha.harness.hosts.installation import described

        typer.echo(f"fmha {described()}")
        raise typer.Exit


def options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks; so does FMHA_DEBUG=1.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    context.obj.debug = context.obj.debug or debug
