"""One run on several hosts whose answers the test writes; everything else is real. tests/remote has real ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import yaml

from fmha.harness.archive import RunRecord
from fmha.harness.archive.record import ConfigurationRecord
from fmha.harness.contract.machine import Gpu
from fmha.harness.contract.protocol import Configuration, Event
from fmha.harness.errors import ExitCode, InfrastructureError, InterruptionError, UserError
from fmha.harness.hosts import HostProvenance, Machine, Order
from fmha.harness.stages import several
from fmha.harness.stages.pipeline import Request
from tests.harness.support import GOOD, Recorder, ScriptedHost, event, git

GUARDS = ["hd64_t1_sk128", "hd64_t32_sk128"]
REST = [f"hd128_t{t}_sk128" for t in (1, 2, 3, 4, 5, 6)]
LOST = InfrastructureError("the connection is gone")


class Telling(Recorder):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def tell(self, text: str) -> None:
        self.told.append(text)


@dataclass
class Named(ScriptedHost):
    """A scripted host with a name and a GPU of its own."""

    name: str = ""
    gpu: str = "NVIDIA B200"
    unreachable: bool = False
    orders: list[Order] = field(default_factory=list)

    def begin(self, order: Order, progress: Callable[[str], None], tell: Callable[[str], None]) -> None:
        if self.unreachable:
            raise InfrastructureError(f"cannot reach {self.name}")
        self.orders.append(order)
        self.run_id = f"run-of-{self.name}"

    def facts(self) -> HostProvenance:
        gpu = Gpu(self.gpu, f"GPU-{self.name}", "580")
        return HostProvenance(self.name, "ssh", Machine("a CPU", 2, "Linux"), {"python": "3.11"}, gpu)


@pytest.fixture
def farm(checkout: Path) -> Path:
    """A checkout that knows the hosts a, b and c, and `other`, which runs other kernels."""
    path = checkout / "matrix.yaml"
    matrix = yaml.safe_load(path.read_text())
    matrix["suites"]["small"]["axes"] = {"head_dim": [64], "t": [1, 32], "s_k": [128]}
    matrix["suites"]["small"]["grids"] = [{"head_dim": [128], "t": [1, 2, 3, 4, 5, 6], "s_k": [128]}]
    matrix["hosts"] |= {name: {"kind": "ssh", "alias": name} for name in ("a", "b", "c")}
    matrix["hosts"]["other"] = {"kind": "ssh", "alias": "other", "arch": "sm_90a"}
    path.write_text(yaml.safe_dump(matrix, sort_keys=False))
    git(checkout, "commit", "-q", "-a", "-m", "a farm")
    return checkout


class Run:
    def __init__(self, root: Path, hosts: Mapping[str, Named], each: bool = False, **request: object) -> None:
        self.observer = Telling()
        self.records: list[RunRecord] = []
        self.paths: list[Path | None] = []
        wanted = Request(root, host=",".join(hosts), **request)
        self.code = several.execute(wanted, each, self.observer, self._show, lambda name, *_: hosts[name])
        (self.record,) = self.records

    def _show(self, record: RunRecord, path: Path | None) -> None:
        self.records.append(record)
        self.paths.append(path)

    def __getitem__(self, name: str) -> ConfigurationRecord:
        return next(item for item in self.record.configurations if item.id == name)


def hosts(*names: str, **changes: object) -> dict[str, Named]:
    return {name: Named(name=name, **changes) for name in names}


def bits(digest: str) -> Callable[[Configuration], Event]:
    return lambda item: event(item, measurement=replace(GOOD, output_hash=digest * 64))


def test_each_host_has_a_share_and_all_the_guard(farm: Path) -> None:
    both = hosts("a", "b")
    run = Run(farm, both)
    assert run.code is ExitCode.PASS
    assert [item.id for item in run.record.configurations] == GUARDS + REST
    assert [host.ran[:2] for host in both.values()] == [GUARDS, GUARDS]
    shares = [host.ran[2:] for host in both.values()]
    assert sorted(shares[0] + shares[1]) == REST
    assert [len(share) for share in shares] == [3, 3]
    assert {run[name].place for name in shares[1]} == {"b"}
    assert run[GUARDS[0]].hashes == {"a": "0" * 64, "b": "0" * 64}
    assert (run.record.host.name, [host.name for host in run.record.host.hosts]) == ("a+b", ["a", "b"])
    assert [gpu.uuid for gpu in run.record.host.gpus] == ["GPU-a", "GPU-b"]
    assert len({order.request["drawn"] for host in both.values() for order in host.orders}) == 1
    (path,) = run.paths
    assert path is not None
    assert path.stem.endswith("-a_b")


def test_what_configurations_took_on_a_host_decides_its_share(farm: Path) -> None:
    slow = {name: lambda item: event(item, seconds=9.0) for name in REST}
    first = hosts("a", "b")
    first["a"].script = slow
    Run(farm, first, cases=[*REST])
    Run(farm, hosts("b", "a"), cases=[*REST])  # so that either host has had each of them, or is guessed from others
    second = hosts("a", "b")
    Run(farm, second, cases=[*REST])
    a, b = (len([name for name in host.ran if name in REST]) for host in second.values())
    assert a + b == len(REST)
    assert b > a


def test_what_a_lost_host_had_not_done_goes_to_the_others(farm: Path) -> None:
    both = hosts("a", "b")
    plan = several.dealt(several.prepare(Request(farm, host="a,b"), lambda name, *_: both[name]), ["a", "b"])
    both["b"].script = {plan["b"][1]: LOST}
    run = Run(farm, both)
    assert run.code is ExitCode.PASS
    assert run[plan["b"][0]].place == "b"
    assert {run[name].place for name in plan["b"][1:]} == {"a"}
    assert [name for name in both["a"].ran if name in plan["b"]] == plan["b"][1:]
    (told,) = run.observer.told
    assert told == "b is lost (run run-of-b): the connection is gone; what it has not done goes to a"


def test_a_guard_that_a_host_could_not_run_says_nothing_of_its_share(farm: Path) -> None:
    """The host does answer: of the guard that its worker died, of its share that it was not run."""
    both = hosts("a", "b")
    both["b"].script = {GUARDS[0]: lambda item: Event("error", item.id, status="infra-error", message="it was killed")}
    run = Run(farm, both)
    assert run.code is ExitCode.PASS
    assert {run[name].place for name in REST} == {"a"}
    assert {run[name].status for name in GUARDS + REST} == {"pass"}
    (told,) = run.observer.told
    assert told == "b has no answer for some of its share (run run-of-b); what it has not done goes to a"


def test_a_host_that_cannot_be_reached_costs_nothing_but_time(farm: Path) -> None:
    both = hosts("a") | {"b": Named(name="b", unreachable=True)}
    run = Run(farm, both)
    assert run.code is ExitCode.PASS
    assert {item.place for item in run.record.configurations} == {"a"}
    assert run.record.host.name == "a"
    (told,) = run.observer.told
    assert told.startswith("b is lost: cannot reach b; ")


def test_no_host_is_left(farm: Path) -> None:
    gone = {name: Named(name=name, unreachable=True) for name in ("a", "b")}
    with pytest.raises(InfrastructureError, match="cannot reach a"):
        Run(farm, gone)
    assert not [*(farm / "results").glob("*.json")]


def test_a_guard_that_breaks_on_one_host_is_red(farm: Path) -> None:
    both = hosts("a", "b")
    both["b"].script = {GUARDS[0]: lambda item: event(item, measurement=replace(GOOD, cosine=0.5))}
    run = Run(farm, both)
    assert run.code is ExitCode.GATE_FAILED
    assert run[GUARDS[0]].status == "fail"
    assert run[GUARDS[0]].reasons[0].startswith("b: cosine is 0.5")
    assert {run[name].status for name in REST} == {"pass", "not-run"}


def test_each_repeats_everything_and_names_the_odd_one_out(farm: Path) -> None:
    three = hosts("a", "b", "c")
    three["b"].script = {REST[2]: bits("f")}
    run = Run(farm, three, each=True)
    assert [host.ran for host in three.values()] == [GUARDS + REST] * 3
    assert run.code is ExitCode.GATE_FAILED
    assert {item.id for item in run.record.configurations if item.status != "pass"} == {REST[2]}
    assert run[REST[2]].reasons == ["outputs differ on NVIDIA B200: b has other bits than a, c"]
    assert run[REST[2]].hashes == {"a": "0" * 64, "b": "f" * 64, "c": "0" * 64}
    two = hosts("a", "b")
    two["b"].script = {REST[2]: bits("f")}
    assert Run(farm, two, each=True)[REST[2]].reasons == ["outputs differ on NVIDIA B200: a against b"]


def test_other_gpus_may_have_other_bits(farm: Path) -> None:
    two = hosts("a") | hosts("b", gpu="NVIDIA B300", script={REST[2]: bits("f")})
    run = Run(farm, two, each=True)
    assert run.code is ExitCode.PASS
    assert len(set(run[REST[2]].hashes.values())) == 2


def test_each_needs_an_answer_of_every_host(farm: Path) -> None:
    two = hosts("a", "b")
    two["b"].script = {REST[2]: LOST}
    run = Run(farm, two, each=True)
    assert run.code is ExitCode.INFRASTRUCTURE
    assert run[REST[1]].status == "pass"
    assert run[REST[2]].status == "infra-error"
    assert run[REST[2]].reasons == ["b: the connection is gone"]
    assert run[REST[2]].metrics is not None


def test_who_is_interrupted_hears_how_to_come_back(farm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(thread: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("threading.Thread.join", interrupted)
    with pytest.raises(InterruptionError) as raised:
        Run(farm, hosts("a", "b"))
    assert "fmha attach run-of-a --host a; fmha attach run-of-b --host b" in str(raised.value.next_step)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("a,a", "a name is empty or repeated"),
        ("a,", "a name is empty or repeated"),
        ("a,emulator", "emulator keeps no runs"),
        ("a,other", "a runs sm_100a on cuda, other sm_90a on cuda"),
        ("a,nobody", "no host is named 'nobody'"),
    ],
)
def test_hosts_that_cannot_share_a_run_are_refused(farm: Path, names: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        several.prepare(Request(farm, host=names), lambda name, *_: Named(name=name))
