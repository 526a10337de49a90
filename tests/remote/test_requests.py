"""What an agent is asked is held against a schema, whoever asks: our client's job, field by field something else."""

from __future__ import annotations

import copy
import hashlib
from pathlib import Path
from typing import Any

import pytest

from fmha.harness.config import interpret
from fmha.harness.config.host_sections import KeySection
from fmha.harness.config.matrix_model import Limits
from fmha.harness.hosts.base import Order
from fmha.harness.hosts.commit_transfer import CommitSource
from fmha.harness.hosts.remote import job_of, settings_of
from fmha.harness.supervisor import requests
from fmha.harness.supervisor.rundir import HostError

SHA = "0123456789abcdef0123456789abcdef01234567"
RUN = f"20260101T000000Z-{SHA[:12]}-00000000"
DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]


@pytest.fixture(scope="module")
def job(repository: Path) -> dict[str, Any]:
    """What the client makes of this project's own settings."""
    text = (repository / "matrix.yaml").read_text()
    matrix = interpret(text, "matrix.yaml", hashlib.sha256(text.encode()).hexdigest())
    host = next(host for host in matrix.hosts.values() if host.remote is not None)
    request = {"suite": "seed", "filters": ["t=1"], "seed": 7, "cases": [], "drawn": None}
    order = Order(
        SHA,
        "main",
        "a label",
        request,
        Limits(1.0, 2.0, 3.0),
        text,
        matrix.sha256,
        False,
        spare=[SHA],
        costs={"x": 1.5},
    )
    return job_of(
        RUN, order, CommitSource("https://x/y.git", "refs/heads/topic/ü", True), settings_of(host), host.name, SHA
    )


def start(job: dict[str, Any]) -> dict[str, Any]:
    return {"op": "start", "job": job, "follow": True, "silence": 20.0}


def test_the_clients_own_job_is_taken(job: dict[str, Any]):
    assert requests.checked(start(job))["job"] == job


WRONG: list[tuple[str, Any]] = [
    *((["sha", "judge", "beside"][at], bad) for at in range(3) for bad in (
        "--output=/home/x/thesis.txt", "HEAD", "main", SHA[:39], f"{SHA}0", SHA.upper(), f"{SHA}\n", f"{SHA}^{{tree}}",
        "../../x", "", 7, True, [SHA], {"x": SHA},
    )),
    ("sha", None), ("run", "../../etc"), ("run", f"{RUN}\n"), ("run", RUN.replace(SHA[:12], "f" * 12)), ("run", None),
    ("label", "x" * 5000), ("label", "a\0b"), ("label", 7), ("by", None), ("schema", 2), ("schema", True),
    ("silence", 0), ("silence", -1.0), ("silence", float("nan")), ("silence", 1e12), ("silence", "20"),
    ("approve_protected", "no"), ("approve_protected", 1), ("secrets", ["A B"]), ("secrets", "TOKEN"),
    ("protected", "kernel/"), ("protected", [""]), ("protected", ["x"] * 10_001), ("protected", [7]),
    ("python", ""), ("python", "a\nb"), ("env", {"A B": "x"}), ("env", {"LD_PRELOAD": 7}), ("env", {"A": "x\0y"}),
    ("nvcc", "a\nb"), ("slurm", {}), ("isolation", "none"), ("isolation", None),
    ("environment.setup", None), ("environment.seconds", -1), ("environment.files", "x"), ("environment", None),
    ("sync.ref", "main"), ("sync.ref", "--upload-pack=x"), ("sync.ref", "refs/heads/x:refs/fmha/approved/y"),
    ("sync.ref", "refs/heads/*"), ("sync.ref", "refs/heads/a..b"), ("sync.ref", "refs/heads/a b"), ("sync.url", "a\nb"),
    ("keep.days", float("inf")), ("keep.runs", 0), ("keep.spare", ["--all"]), ("keep.spare", SHA),
    ("gpu.count", 0), ("gpu.count", 10**6), ("gpu.count", True), ("gpu.foreign", "kill"), ("gpu.priority", "first"),
    ("gpu.query", None), ("gpu.nvidia_smi", ""), ("gpu.use", [0]),
    ("limits.build_seconds", -1), ("limits.total_seconds", 1e300), ("limits.build_seconds", 31 * 86400),
    ("work.host", "../x"), ("work.host", ""), ("work.device", "os:system()"), ("work.device", "a b"),
    ("work.workers", -1), ("work.workers", 1 << 40), ("work.costs", {"x": "y"}), ("work.beside", "f" * 40),
    ("work.request", {"directory": "/"}), ("work.request", {"a-b": 1}), ("work.request", {"suite": DEEP}),
    ("work.request", {"suite": 1 << 70}), ("work.request", {"suite": "x" * (2 << 20)}), ("work.request", []),
    ("work.request", {"random_cases": 10_001}), ("work.request", {"random_cases": "7"}),
    ("order.request", {"random_cases": 10**9}), ("work.request", {"schedules": 0}), ("work.request", {"cases": [7]}),
    ("work.request", {"noise_seeds": [0.5]}), ("order.matrix", 7), ("order.matrix_sha256", "x"), ("order.own", 1),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), WRONG, ids=lambda item: repr(item)[:30])
def test_a_field_that_is_something_else_is_refused_by_name(field: str, value: Any, job: dict[str, Any]):
    changed = copy.deepcopy(job)
    *above, name = field.split(".")
    section = changed
    for part in above:
        section = section[part]
    section[name] = value
    with pytest.raises(HostError) as caught:
        requests.checked(start(changed))
    assert caught.value.usage
    assert "the request is refused" in caught.value.what
    assert name in caught.value.what or "run" in caught.value.what or "timed beside" in caught.value.what
    assert len(caught.value.what) < 300


def sections(value: dict[str, Any], at: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every object of a job whose fields are known by name."""
    free = {"env", "costs", "request"}
    return [at, *(path for name, item in value.items() if isinstance(item, dict) and name not in free
                  for path in sections(item, (*at, name)))]  # fmt: skip


def test_no_field_is_missing_and_none_is_added(job: dict[str, Any]):
    for path in sections(job):
        fields = job
        for part in path:
            fields = fields[part]
        for change in ({"forced": False}, *({"without": name} for name in fields)):
            changed = copy.deepcopy(job)
            section = changed
            for part in path:
                section = section[part]
            if "without" in change:
                del section[str(change["without"])]
            else:
                section.update(change)
            with pytest.raises(HostError, match=r"has no|has a field that nobody knows"):
                requests.checked(start(changed))


@pytest.mark.parametrize(
    "request_",
    [
        {}, {"op": None, "silence": 1}, {"op": ["start"], "silence": 1}, {"op": "start", "silence": 1},
        {"op": "list"}, {"op": "list", "silence": 1, "more": 1}, {"op": "follow", "run": RUN, "offset": -1},
        {"op": "logs", "silence": 1, "run": "../x"}, {"op": "cancel", "silence": 1, "run": RUN, "who": ["x"]},
        {"op": "clean", "silence": 1, "age_seconds": float("nan"), "size_bytes": 1, "dry": False},
        {"op": "occupancy", "silence": 1, "gpu": {}}, {"op": "key", "silence": 1, "policy": {}}, DEEP,
    ],
    ids=lambda item: repr(item)[:40],
)  # fmt: skip
def test_what_is_no_request_is_refused(request_: Any):
    with pytest.raises(HostError, match="the request is refused"):
        requests.checked(request_)


@pytest.mark.parametrize("name", KeySection.model_fields)
def test_what_an_owner_may_write_of_a_key_is_what_a_host_takes(name: str, job: dict[str, Any]):
    """The two know the same bounds, though neither imports the other."""
    said = KeySection.model_json_schema()["properties"][name]
    highest = next(kind["maximum"] for kind in (said, *said.get("anyOf", ())) if "maximum" in kind)
    policy = {name: job[name] for name in requests.OWNED} | {
        "gpu": {word: value for word, value in job["gpu"].items() if word != "priority"},
        "keep": {word: value for word, value in job["keep"].items() if word != "spare"},
        "device": "cuda", "archs": ["sm_100a"], "fetch_url": "",
        "key": KeySection(workers=1).model_dump() | {name: highest},
    }  # fmt: skip
    asked = {"op": "key", "silence": 1.0, "policy": policy}
    assert requests.checked(asked) == asked
    policy["key"][name] = highest + 1
    with pytest.raises(HostError, match=f"key.{name}"):
        requests.checked(asked)


@pytest.mark.parametrize("said", [{}, {"secrets": None}, {"secrets": {"TOKEN": 7}}, {"secrets": ["x"]}, {"here": True}])
def test_secrets_are_text_by_name(said: Any):
    with pytest.raises(HostError, match="has not told"):
        requests.told(["TOKEN"], said)
