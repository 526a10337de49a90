"""`fmha hosts`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fmha.harness.cli.common_options import Json
from fmha.harness.cli.doctor import examined
from fmha.harness.cli.output import print_json, say
from fmha.harness.cli.plain_text import columns, duration
from fmha.harness.config import own_hosts
from fmha.harness.errors import ExitCode, UserError
from fmha.harness.hosts.ssh import public_key
from fmha.harness.stages import administration
from fmha.harness.stages.administration import Reach, forced_command, reach
from fmha.harness.stages.host_checkout import find_checkout
from fmha.harness.stages.preflight import git_root

HELP = """List the hosts of matrix.yaml, and your own, whether they answer, and who has their GPUs or waits for them.

Exits with 3 when a host does not answer.

Your own are in ~/.config/fmha/hosts.yaml; docs/use/remote.md says how. `fmha hosts add b200` writes one and tries it.
"""

KEY_HELP = """Print a line for ~/.ssh/authorized_keys on a host: its key can do nothing but run commits.

The host gets an agent of its own for the key. It starts, follows, lists and ends runs with the settings that NAME has
now, and refuses every other request: no shell, no files, no forwarding, no approval of protected files. It is for
machines that hold a key without a person, CI first of all. Append the line on the host with your own login:

\b
  ssh-keygen -t ed25519 -N '' -f ci_key
  fmha hosts key b200 ci_key.pub | ssh b200 'cat >> ~/.ssh/authorized_keys'

Do so again when the settings change, or fmha itself.

What the commits bring runs in a sandbox there, or not at all: `fmha doctor --host` says what a host lacks for one. The
setting `key` of NAME says how much its runs may take: time, workers, random cases, places, bytes that are sent.
"""

RESERVE_HELP = """Keep a GPU of a host for your own runs for a while.

It waits its turn in the queue like a run. Then only runs of the same account there get the GPU, one after the other,
until the time is up or `fmha hosts release` ends it.

\b
Example:
  fmha hosts reserve b200 --hours 2
"""


class IsolationChoice(StrEnum):
    """As a host's setting of that name."""

    REQUIRE = "require"
    AUTO = "auto"
    OFF = "off"


app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def command(
    context: typer.Context,
    json: Json = False,
) -> None:
    if context.invoked_subcommand is None:
        context.obj.action = partial(_run, json)


@app.command(name="add", help="Add a host to your own, and say what is missing there.")
def add(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What --host is to call it.")],
    alias: Annotated[str | None, typer.Option(help="Its alias in ~/.ssh/config.  [default: NAME]")] = None,
    json: Json = False,
) -> None:
    context.obj.action = partial(_add, name, alias or name, json)


@app.command(name="reserve", help=RESERVE_HELP)
def reserve(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A host of matrix.yaml, or one of your own.")],
    hours: Annotated[float, typer.Option(min=0.001, max=24, help="For how long, from when there is a GPU.")] = 1.0,
    gpu: Annotated[
        str | None, typer.Option(help="This one, by UUID or index.  [default: any that you may use]")
    ] = None,
    json: Json = False,
) -> None:
    context.obj.action = partial(_reserve, name, gpu, hours, json)


@app.command(name="release", help="End a reservation, once the run that is in it has come to its end.")
def release(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The host.")],
    reservation: Annotated[str, typer.Argument(metavar="RESERVATION", help="As fmha hosts shows it.")],
    json: Json = False,
) -> None:
    context.obj.action = partial(_release, name, reservation, json)


@app.command(name="key", help=KEY_HELP)
def key(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A host of matrix.yaml, or one of your own.")],
    public: Annotated[Path, typer.Argument(metavar="FILE", help="The public half of the key, as ssh-keygen wrote it.")],
    isolation: Annotated[
        IsolationChoice,
        typer.Option(help="Of its runs on the host: require a sandbox, take the best there is, or none."),
    ] = IsolationChoice.REQUIRE,
    json: Json = False,
) -> None:
    context.obj.action = partial(_key, name, public, isolation.value, json)


def _key(name: str, public: Path, isolation: str, json: bool) -> ExitCode:
    line = public_key(public)
    command = forced_command(find_checkout(Path.cwd()).named(name), isolation).replace("\\", "\\\\").replace('"', '\\"')
    text = f'restrict,command="{command}" {line}'
    if json:
        print_json("key", 1, {"host": name, "line": text})
    else:
        print(text)
    return ExitCode.PASS


def _reserve(name: str, gpu: str | None, hours: float, json: bool) -> ExitCode:
    reservation, found = administration.reserve(find_checkout(Path.cwd()).named(name), gpu, 3600 * hours)
    if json:
        print_json("reserve", 1, {"host": name, "reservation": reservation, **found.model_dump()})
    elif found.gpu:
        say(f"{name}: {found.gpu} is reserved until {_clock(found.until)}, as {reservation}")
    else:
        say(f"{name}: {reservation} waits at {found.position}: {found.reason}; fmha hosts shows when it has a GPU")
    return ExitCode.PASS


def _release(name: str, reservation: str, json: bool) -> ExitCode:
    if not administration.release(find_checkout(Path.cwd()).named(name), reservation):
        step = "fmha hosts shows those that there are"
        raise UserError(f"you have no reservation {reservation!r} there", where=name, next_step=step)
    if json:
        print_json("release", 1, {"host": name, "reservation": reservation})
    else:
        say(f"{name}: {reservation} ends")
    return ExitCode.PASS


def _clock(moment: float) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):%H:%M UTC}"


def _add(name: str, alias: str, json: bool) -> ExitCode:
    git_root(Path.cwd())  # outside of a checkout there is nothing to try it with
    path = own_hosts.add(name, alias)
    if not json:
        say(f"{path}: host {name}, alias {alias}")
    return examined(find_checkout(Path.cwd()).named(name), json)


def _run(json: bool) -> ExitCode:
    checkout = find_checkout(Path.cwd())
    here = [Reach(host.name, host.kind, "", "", 0.0) for host in checkout.matrix.hosts.values() if host.remote is None]
    answers = here + reach(checkout.places())
    if json:
        print_json("hosts", 1, {"hosts": [_plain(answer) for answer in answers]})
    else:
        rows = [(a.name, a.kind, a.means, a.problem or _answered(a)) for a in answers]
        for line in columns([("HOST", "KIND", "WHERE", "STATE"), *rows]):
            print(line)
        occupants = [row for answer in answers for row in _occupants(answer)]
        if occupants:
            print()
            for line in columns([("HOST", "GPU", "ACCOUNT", "RUN", "FOR", "PRIORITY", "STATE"), *occupants]):
                print(line)
    return ExitCode.INFRASTRUCTURE if any(answer.problem and answer.known for answer in answers) else ExitCode.PASS


def _plain(answer: Reach) -> dict[str, object]:
    return {**asdict(answer), "gpus": [row.model_dump() for row in answer.gpus]}


def _occupants(answer: Reach) -> Iterator[tuple[str, ...]]:
    for row in answer.gpus:
        since = "" if row.seconds is None else duration(row.seconds)
        state = f"waits at {row.position}" if row.position else "has it"
        if row.until:
            state = f"reserved until {_clock(row.until)}"
        yield answer.name, row.gpu, row.account, row.run or f"process {row.pid}", since, row.priority, state


def _answered(answer: Reach) -> str:
    return f"answered in {answer.seconds:.1f} s" if answer.seconds else "this process"
