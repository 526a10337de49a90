"""Several accounts on one host: its GPUs are locked, queued for and shown across them, and none can harm another."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from fmha.harness.hosts.shipment import package_files
from fmha.harness.supervisor import gpus, locks
from tests.integration.processes import eventually
from tests.remote.conftest import Client, fresh_client, in_state, started
from tests.remote.server import ACCOUNT, OTHER, OTHER_UID, UID, Server, host_python

pytestmark = [
    pytest.mark.nvcc,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="has two accounts on a host, which needs root"),
    pytest.mark.skipif(not host_python(), reason="no Python of this version is open to other accounts"),
]
GOOD = {"hd64_t1_sk128": "pass", "hd64_t32_sk128": "pass"}


@pytest.fixture
def colleague(template: Path, server: Server, client: Client, tmp_path: Path) -> Iterator[Client]:
    """A client of another account on the same host, with what `client` has in its caches."""
    assert server.other_home is not None
    home = server.other_home / "fmha"
    if not home.exists():
        home.mkdir()
        shutil.copytree(server.home / "fmha" / "cache", home / "cache")
        subprocess.run(["chown", "-R", f"{OTHER_UID}:{OTHER_UID}", home], check=True)
    folder = tmp_path / "colleague"
    with fresh_client(template, server, folder, options={"User": OTHER}, home=server.other_home) as made:
        yield made


def occupants(client: Client) -> list[tuple[str, str, int]]:
    """Account, run and position of whoever `fmha hosts` shows on `gpu`."""
    hosts = json.loads(client.run("hosts", "--json").stdout)["hosts"]
    rows = next(host["gpus"] for host in hosts if host["name"] == "gpu")
    return [(row["account"], row["run"], row["position"]) for row in rows]


def ended(client: Client, run: str) -> str:
    """The final state of a run; nobody follows it."""
    status = client.home / "fmha" / "runs" / run / "status.json"
    assert eventually(status.exists), client.events(status.parent)
    state: str = json.loads(status.read_text())["state"]
    return state


def waits(events: list[dict[str, object]]) -> bool:
    return any(event["kind"] == "waiting" for event in events)


def test_a_second_account_runs_where_a_first_has_run(client: Client, colleague: Client):
    """The agent's umask is 077: what the first account leaves behind is closed to the second."""
    for each in (client, colleague, client):
        done = each.run("run-matrix", "--host", "gpu", "-q")
        assert done.returncode == 0, done.stderr
    doctor = colleague.run("doctor", "--host", "gpu", "--json")
    findings = {finding["name"]: finding for finding in json.loads(doctor.stdout)["findings"]}
    assert findings["locks"] == {"name": "locks", "good": True, "seen": f"taken and seen as {OTHER}'s", "fix": ""}


def test_accounts_wait_for_each_other_and_are_named(client: Client, colleague: Client):
    with client.server.hold("t1"):
        mine = client.detached()
        client.wait_for(started("hd64_t1_sk128"))
        theirs = colleague.detached()
        run = colleague.wait_for(waits)
        (event,) = [event for event in colleague.events(run) if event["kind"] == "waiting"]
        assert event["reason"] == f"emulator is held by run {mine} of {ACCOUNT}"
        assert occupants(client) == [(ACCOUNT, mine, 0), (OTHER, theirs, 1)]
        assert not in_state("run")(colleague.events(run))
        shown = colleague.run("hosts").stdout
        assert any(ACCOUNT in line and mine in line and "has it" in line for line in shown.splitlines())
        assert any(OTHER in line and theirs in line and "waits at 1" in line for line in shown.splitlines())
    assert (ended(client, mine), ended(colleague, theirs)) == ("done", "done")
    assert occupants(client) == []


def test_files_that_another_account_has_planted_are_not_touched(client: Client, colleague: Client, tmp_path: Path):
    """Where locks were files, a link named like one had the victim truncate what it points at."""
    trap = client.server.folder / "small" / "trap"
    trap.mkdir(mode=0o777)
    os.chown(trap, OTHER_UID, OTHER_UID)
    treasure = client.home / "treasure"
    treasure.write_text("of the victim")
    os.chown(treasure, UID, UID)
    (trap / "emulator.lock").symlink_to(treasure)
    (trap / "emulator.quarantine").symlink_to(client.home / "made")
    (trap / "queue").symlink_to(client.home)
    before = sorted(path.name for path in client.home.iterdir())
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"]["gpus"].update(locks=str(trap)))
    try:
        assert client.run("run-matrix", "--host", "gpu", "-q").returncode == 0
        assert treasure.read_text() == "of the victim"
        assert sorted(path.name for path in client.home.iterdir()) == before
        assert sorted(path.name for path in trap.iterdir()) == ["emulator.lock", "emulator.quarantine", "queue"]
    finally:
        shutil.rmtree(trap)
        treasure.unlink()


def test_accounts_take_turns_and_priority_is_among_ones_own(client: Client, colleague: Client):
    """One account has queued three runs, the last with high priority, before another queues one of low priority."""
    with client.server.hold("t1"):
        first = client.detached()
        client.wait_for(started("hd64_t1_sk128"))
        order = [client.detached(*more) for more in ((), ("--priority", "low"), ("--priority", "high"))]
        theirs = colleague.detached("--priority", "low")
        expected = [theirs, order[2], order[0], order[1]]

        def queued() -> list[str]:
            space = locks.LockSpace(str(client.server.folder))
            try:
                return [claim.run for claim in space.look().queue(locks.digest("emulator"))]
            finally:
                space.close()

        assert eventually(lambda: len(queued()) == 4)
        assert queued() == expected
    began = {}
    for who, name in [(colleague, theirs), *((client, run) for run in (first, *order))]:
        assert ended(who, name) == "done"
        events = who.events(who.home / "fmha" / "runs" / name)
        began[name] = next(event["at"] for event in events if event.get("state") == "run")
    assert sorted(began, key=began.__getitem__) == [first, *expected]


def test_a_stopped_run_at_the_head_of_the_queue_is_passed(client: Client, colleague: Client):
    with client.server.hold("t1"):
        first = client.detached()
        client.wait_for(started("hd64_t1_sk128"))
        stopped = colleague.detached()
        head = colleague.wait_for(waits)
        last = client.detached()
        client.wait_for(waits)
        pid = json.loads((head / "supervisor.json").read_text())["pid"]
        os.kill(pid, signal.SIGSTOP)
    try:
        assert (ended(client, first), ended(client, last)) == ("done", "done")
        assert not in_state("run")(colleague.events(head))
    finally:
        os.kill(pid, signal.SIGCONT)
    assert ended(colleague, stopped) == "done"


def test_a_killed_holder_frees_its_gpu_for_another_account(client: Client, colleague: Client):
    with client.server.hold("t1"):
        client.detached()
        run = client.wait_for(started("hd64_t1_sk128"))
        theirs = colleague.detached()
        waiting = colleague.wait_for(waits)
        keeper = json.loads((run / "supervisor.json").read_text())
        for pid in (keeper["keeper"], keeper["pid"]):
            os.kill(pid, signal.SIGKILL)
        assert eventually(lambda: in_state("run")(colleague.events(waiting)))
    assert ended(colleague, theirs) == "done"
    client.run("ps", "--host", "gpu")  # ends what the killed ones left


def reserved(client: Client, *arguments: str) -> dict[str, object]:
    done = client.run("hosts", "reserve", "gpu", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    said: dict[str, object] = json.loads(done.stdout)
    return said


def released(client: Client, reservation: object) -> None:
    assert client.run("hosts", "release", "gpu", str(reservation)).returncode == 0
    assert eventually(lambda: not occupants(client))


def test_a_reservation_keeps_a_gpu_for_the_runs_of_its_account(client: Client, colleague: Client):
    """One after the other, and whoever else waits gets it once the reservation has been given up."""
    mine = reserved(client, "--hours", "1")
    assert (mine["gpu"], mine["position"]) == ("emulator", 0)
    shown = client.run("hosts").stdout
    assert any(str(mine["reservation"]) in line and "reserved until" in line for line in shown.splitlines())
    theirs = colleague.detached()
    waiting = colleague.wait_for(waits)
    assert f"held by reservation {mine['reservation']} of {ACCOUNT}" in str(colleague.events(waiting))
    refused = colleague.run("hosts", "release", "gpu", str(mine["reservation"]))
    assert refused.returncode == 2
    assert "you have no reservation" in refused.stderr
    with client.server.hold("t1"):
        first = client.detached()
        client.wait_for(started("hd64_t1_sk128"))
        second = client.detached()
        client.wait_for(waits)
        assert {(who, run) for who, run, _ in occupants(client)} == {
            (ACCOUNT, mine["reservation"]), (ACCOUNT, first), (ACCOUNT, second), (OTHER, theirs),
        }  # fmt: skip
        assert client.run("hosts", "release", "gpu", str(mine["reservation"])).returncode == 0
        assert (ACCOUNT, mine["reservation"], 0) in occupants(client)  # while the run in it goes on
    assert [ended(client, first), ended(client, second), ended(colleague, theirs)] == ["done"] * 3
    assert eventually(lambda: not occupants(client))


def test_a_reservation_waits_its_turn_and_ends_when_it_is_given_up_or_over(client: Client, colleague: Client):
    with client.server.hold("t1"):
        run = client.detached()
        client.wait_for(started("hd64_t1_sk128"))
        said = reserved(colleague)
        assert said["position"] == 1
        assert said["reason"] == f"emulator is held by run {run} of {ACCOUNT}"
        other = reserved(colleague, "--hours", "2")
        released_early = colleague.run("hosts", "release", "gpu", str(other["reservation"]))
        assert released_early.returncode == 0  # one that waits goes at once
    assert ended(client, run) == "done"
    assert eventually(lambda: occupants(client) == [(OTHER, said["reservation"], 0)])
    released(colleague, said["reservation"])
    assert reserved(client, "--hours", "0.001")["gpu"] == "emulator"
    assert eventually(lambda: not occupants(client))


def test_a_run_left_in_a_reservation_that_was_killed_keeps_its_gpu(client: Client, colleague: Client):
    mine = reserved(client)
    with client.server.hold("t1"):
        first = client.detached()
        client.wait_for(started("hd64_t1_sk128"))
        space = locks.LockSpace(str(client.server.folder))
        os.kill(space.look().locks["emulator"].pid, signal.SIGKILL)
        assert eventually(lambda: "emulator" not in space.look().locks)
        space.close()
        colleague.detached()
        waiting = colleague.wait_for(waits)
        assert f"held by run {first} of {ACCOUNT}" in str(colleague.events(waiting))
    assert ended(client, first) == "done"
    assert eventually(lambda: in_state("run")(colleague.events(waiting)))
    assert mine["reservation"] not in str(occupants(client))
    assert eventually((waiting / "status.json").exists)


@pytest.mark.parametrize("hours", ["0", "25", "nan"])
def test_a_gpu_is_not_kept_for_ever(hours: str, client: Client):
    assert client.run("hosts", "reserve", "gpu", "--hours", hours).returncode == 2
    assert occupants(client) == []


ACTOR = """
import os, socket, sys, time
from fmha.harness.supervisor import locks
space, prefix = locks.LockSpace("test"), locks.LockSpace("test")._prefix
RUN = "20260101T000000Z-000000000000-00000000"
def raw(name, listen=True):
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.bind("\\0" + name)
    if listen: made.listen(int(os.environ.get("BACKLOG", "100")))
    return made
def talk(link):
    try: link.send(bytes(9))
    except BrokenPipeError: pass
    links.append(link)
links = []
{script}
print("ready", flush=True)
while True:
    {loop}
"""


@pytest.fixture(scope="module")
def package(public_folder: Path) -> Path:
    """The supervisor's modules where any account can read them."""
    folder = public_folder / "package"
    for name, text in package_files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def act(package: Path) -> Iterator[object]:
    """Starts a process of another account that does what a script says, and goes on doing it."""
    actors = []

    def begin(script: str, loop: str = "time.sleep(60)", user: int = OTHER_UID, **environment: str) -> int:
        text = ACTOR.format(script=script, loop=loop)
        command = [host_python() or shutil.which("python3"), "-c", text]
        actor = subprocess.Popen(
            command, env={"PYTHONPATH": str(package), **environment}, stdout=subprocess.PIPE, user=user, group=user
        )
        actors.append(actor)
        assert actor.stdout is not None
        assert actor.stdout.readline() == b"ready\n"
        return actor.pid

    yield begin
    for actor in actors:
        actor.kill()
        actor.wait()
        actor.stdout.close()


@pytest.fixture
def space() -> Iterator[locks.LockSpace]:
    made = locks.LockSpace("test")
    yield made
    made.close()


def rules(tmp_path: Path, seconds: float) -> gpus.Rules:
    return gpus.Rules("test", tmp_path, "nvidia-smi", 1.0, (), seconds, "wait")


MINE = "20260202T000000Z-111111111111-11111111"


WAIT_SECONDS = 1.5
MOST_WAKES = 10  # within WAIT_SECONDS, the crowded looking once a second; a wait that spins wakes up thousands of times


@pytest.fixture
def wakes(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One for each time that a wait has slept."""
    counted: list[None] = []
    sleep = locks.LockSpace.sleep

    def slept(self: locks.LockSpace, claims: Iterable[locks.Claim], seconds: float) -> None:
        sleep(self, claims, seconds)
        counted.append(None)

    monkeypatch.setattr(locks.LockSpace, "sleep", slept)
    return counted


def waited(tmp_path: Path) -> str:
    """Why no GPU could be had within WAIT_SECONDS, as far as it was told."""
    told: list[str] = []
    with (
        gpus.Wait(rules(tmp_path, WAIT_SECONDS), (), MINE, lambda reason, position: told.append(reason)) as wait,
        pytest.raises(gpus.HostError, match="no GPU was free"),
    ):
        wait.lease()
    return told[-1] if told else ""


@pytest.mark.parametrize(
    ("script", "loop", "said"),
    [
        (
            "held = space.take('emulator', RUN)",
            "time.sleep(60)",
            f"run 20260101T000000Z-000000000000-00000000 of {OTHER_UID}",
        ),
        ("held = raw(prefix + '/lock/emulator')", "time.sleep(60)", f"process PID of {OTHER_UID}"),
        ("held = raw(prefix + '/lock/emulator')", "held.accept()[0].close()", f"process PID of {OTHER_UID}"),
        ("held = raw(prefix + '/lock/emulator')", "talk(held.accept()[0])", f"process PID of {OTHER_UID}"),
        (
            "held = raw(prefix + '/lock/emulator'); words = raw(f'{prefix}/held/{locks.digest(\"emulator\")}/zz/x')",
            "time.sleep(60)",
            f"process PID of {OTHER_UID}",
        ),
    ],
    ids=["a run", "no run", "hangs up", "talks", "words that are none"],
)
def test_whoever_holds_a_lock_is_named_and_waited_for_asleep(
    act, wakes: list[None], tmp_path: Path, script: str, loop: str, said: str
):
    pid = act(script, loop)
    assert waited(tmp_path) == "emulator is held by " + said.replace("PID", str(pid)).replace(
        f"of {OTHER_UID}", f"of uid {OTHER_UID}"
    )
    assert 0 < len(wakes) < MOST_WAKES


def test_a_lock_that_does_not_listen_holds_and_is_waited_for_asleep(act, wakes: list[None], tmp_path: Path):
    act("held = raw(prefix + '/lock/emulator', listen=False)")
    waited(tmp_path)
    assert 0 < len(wakes) < MOST_WAKES


def test_nobody_speaks_for_another(act, space: locks.LockSpace):
    """Words about a lock count only from the process that has it."""
    holder = act("held = space.take('emulator', RUN.replace('2026', '2027'))", user=UID)
    act("words = raw(f'{prefix}/held/{locks.digest(\"emulator\")}/0/0/{RUN}')")
    lock = space.look().locks["emulator"]
    assert (lock.uid, lock.pid) == (UID, holder)
    assert lock.run.startswith("2027")


def test_a_place_that_claims_to_be_older_wins_no_turn(act, space: locks.LockSpace):
    """It comes first among those whose turn it is as well, but an account has each turn once."""
    act(
        "names = [raw(f'{prefix}/wait/{locks.digest(\"emulator\")}/0/0/{n}/' + RUN.replace('00000000', f'{n:08}')) "
        "for n in range(20)]"
    )
    mine = space.wait(["emulator"], MINE, "low", 0)
    try:
        queue = space.look().queue(locks.digest("emulator"))
        assert len(queue) == 21
        assert [claim.run for claim in queue].index(MINE) == 1
    finally:
        for name in mine:
            name.close()


def test_a_lock_whose_connections_are_used_up_still_holds(
    act, space: locks.LockSpace, wakes: list[None], tmp_path: Path
):
    """Linux lets one more connect than the owner asked for; the rest cannot see whose it is and look again."""
    pid = act("held = raw(prefix + '/lock/emulator')", BACKLOG="0")
    crowd = [locks._dial(f"{space._prefix}/lock/emulator") for _ in range(2)]
    assert crowd[-1] is None
    reason = waited(tmp_path)
    assert "emulator is held by" in reason
    assert str(pid) not in reason
    assert 0 < len(wakes) < MOST_WAKES
    crowd[0].close()


def test_an_owner_makes_room_for_those_who_look(space: locks.LockSpace):
    """More look at a lock while it is held than may be connected at once."""
    names = space.take("emulator", MINE)
    assert names is not None
    try:
        for _ in range(3):
            for _ in range(2000):
                link = locks._dial(f"{space._prefix}/lock/emulator")
                assert link is not None
                link.close()
            for _ in range(1 + 2000 // locks.MOST_HEARD):
                names[0].answer()
    finally:
        for name in names:
            name.close()


@pytest.mark.timeout(120)
def test_a_gpu_is_given_as_soon_as_its_holder_dies(
    act, wakes: list[None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Nothing but the broken connection wakes the wait: it would not look again by itself before the test is over."""
    monkeypatch.setattr(locks, "LOOK_SECONDS", 1e6)
    monkeypatch.setattr(locks, "CROWDED_SECONDS", 1e6)
    pid = act("held = space.take('emulator', RUN)")
    with gpus.Wait(rules(tmp_path, 1e6), (), MINE, lambda *_: os.kill(pid, signal.SIGKILL)) as wait:
        wait.lease().close()
    assert len(wakes) == 1
