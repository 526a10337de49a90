"""What an agent is asked, field by field. The names and meanings are those of harness/hosts/remote.py `job_of`.

An agent and its client are of one version: the client ships the agent, and that of a forced command refuses others. So
nothing here has to put up with fields of another version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fmha.harness.supervisor.rundir import RUN_ID, HostError
from fmha.harness.supervisor.schema import (
    MOST_INTEGER,
    Kind,
    fields,
    flag,
    integer,
    maybe,
    named,
    number,
    one_of,
    plain,
    refuse_unless,
    several,
    text,
)

MOST_PACK_BYTES: Final = 64 << 30
MOST_SECONDS: Final = 1e9
MOST_LIMIT_SECONDS: Final = 30 * 86400.0
MOST_RANDOM_CASES: Final = 10_000
MOST_MATRIX: Final = 16 << 20
MOST_REQUEST: Final = 4 << 20
_COUNT: Final = 1024
_ITEMS: Final = 10_000

COMMIT: Final = text(40, r"[0-9a-f]{40}", "no commit, which is 40 hexadecimal digits")
RUN: Final = text(64, RUN_ID.pattern, "no run")
DIGEST: Final = text(64, r"[0-9a-f]{64}", "no SHA-256")
WORDS: Final = text(4096)
LINE: Final = text(4096, r"[^\0-\x1f\x7f]*", "not one line")
FILLED: Final = text(4096, r"[^\0-\x1f\x7f]+", "empty, or not one line")
PATH: Final = text(4096, r"[^\0]+", "no path")
VARIABLE: Final = text(256, r"[A-Za-z_][A-Za-z0-9_]*", "no name of a variable")
NAME: Final = text(256, r"[A-Za-z0-9_][\w.-]*", "no name")
DEVICE: Final = text(256, r"[A-Za-z_][\w.]*(?::[A-Za-z_]\w*)?", "no device")
ARCH: Final = text(64, r"\w[\w.-]*", "no architecture")
REF: Final = text(
    1024, r"(?!.*(?:\.\.|@\{|//|\.lock(?:/|$)|/\.|/$|\.$))(?:refs/[^\0-\x20~^:?*\[\\\x7f]+)?", "no full name of a ref"
)
SECONDS: Final = number(0, MOST_SECONDS)
LIMIT: Final = number(0, MOST_LIMIT_SECONDS)
SILENCE: Final = number(0.01, 86400)
ISOLATION: Final = one_of("auto", "require", "off")
PRIORITY: Final = one_of("high", "normal", "low")

_GPU: Final = {
    "use": several(FILLED, _COUNT),
    "count": integer(1, _COUNT),
    "locks": FILLED,
    "wait_seconds": SECONDS,
    "foreign": one_of("wait", "refuse"),
    "nvidia_smi": maybe(FILLED),
    "smi_seconds": SECONDS,
    "query": flag,
}
GPU: Final = fields(_GPU)
_KEEP: Final = {"days": SECONDS, "runs": integer(1, 1 << 40)}
SLURM: Final = fields(
    {
        "tasks": integer(1, _COUNT),
        **dict.fromkeys(
            ("partition", "account", "qos", "gres", "time", "constraint", "exclude", "mem", "container_image"), LINE
        ),
        "cpus_per_task": maybe(integer(1, _COUNT)),
        "container_mounts": several(FILLED, _COUNT),
        "late_seconds": SECONDS,
        "wait_seconds": SECONDS,
    }
)
_ENVIRONMENT: Final = fields({"setup": text(1 << 16), "files": several(FILLED, _ITEMS), "seconds": SECONDS})
_VARIABLES: Final = named(VARIABLE, text(1 << 16), _ITEMS)
# What chooses the configurations is for the judge's own stages to understand, by the names of their Request.
_FIELDS: Final = named(text(64, r"(?!directory$|host$)[a-z][a-z0-9_]*", "no name of a field"), plain(1 << 20), 100)
# But how many of a kind are run: a stage would count until its host had no memory left.
_COUNTS: Final[Mapping[str, Kind]] = {
    "random_cases": maybe(integer(1, MOST_RANDOM_CASES)),
    "schedules": maybe(integer(1, _ITEMS)),
    "noise_seeds": several(integer(0, MOST_INTEGER - 1), _ITEMS),
    "cases": several(LINE, 10 * _ITEMS),
}


def _request(value: Any, name: str) -> str | None:
    if (wrong := _FIELDS(value, name)) is not None:
        return wrong
    counted = ((word, kind) for word, kind in _COUNTS.items() if word in value)
    return next((wrong for word, kind in counted if (wrong := kind(value[word], f"{name}.{word}"))), None)


_WORK: Final = fields(
    {
        "host": NAME,
        "device": DEVICE,
        "arch": ARCH,
        "request": _request,
        "beside": maybe(COMMIT),
        "own": flag,
        "workers": integer(0, _COUNT),
        "costs": named(LINE, SECONDS, 100_000),
        "slurm": flag,
    }
)
_ORDER: Final = fields(
    {
        "branch": maybe(WORDS),
        "request": _request,
        "matrix": text(MOST_MATRIX),
        "matrix_sha256": DIGEST,
        "own": flag,
    }
)
# What a host's owner decides of a run, whatever it runs.
OWNED: Final[Mapping[str, Kind]] = {
    "protected": several(PATH, _ITEMS),
    "environment": _ENVIRONMENT,
    "python": FILLED,
    "env": _VARIABLES,
    "nvcc": LINE,
    "slurm": maybe(SLURM),
    "isolation": ISOLATION,
}
JOB: Final = fields(
    {
        "schema": integer(1, 1),
        "run": RUN,
        "sha": COMMIT,
        "beside": maybe(COMMIT),
        "judge": maybe(COMMIT),
        "alike": flag,
        "label": WORDS,
        "silence": SILENCE,
        "sync": fields({"url": LINE, "ref": REF, "direct": flag}),
        "approve_protected": flag,
        "secrets": several(VARIABLE, 100),
        "by": WORDS,
        "keep": fields({**_KEEP, "spare": several(COMMIT, _ITEMS)}),
        **OWNED,
        "gpu": fields({**_GPU, "priority": PRIORITY}),
        "limits": fields({"build_seconds": LIMIT, "total_seconds": LIMIT}),
        "work": _WORK,
        "order": _ORDER,
    }
)
_SETTINGS: Final = fields(
    {
        "python": FILLED,
        "device": DEVICE,
        "env": _VARIABLES,
        "nvcc": LINE,
        "gpu": GPU,
        "slurm": maybe(SLURM),
        "archs": several(ARCH, 100),
    }
)
_KEY: Final = fields(
    {
        "seconds": LIMIT,
        "workers": integer(0, _COUNT),
        "random_cases": integer(1, MOST_RANDOM_CASES),
        "runs": integer(1, 1000),
        "pack_bytes": integer(1, MOST_PACK_BYTES),
    }
)
_POLICY: Final = fields(
    {
        **OWNED,
        "gpu": GPU,
        "keep": fields(_KEEP),
        "device": DEVICE,
        "archs": several(ARCH, 100),
        "fetch_url": LINE,
        "key": _KEY,
    }
)
OPERATIONS: Final[Mapping[str, Mapping[str, Kind]]] = {
    "start": {"job": JOB, "follow": flag},
    "follow": {"run": RUN, "offset": integer(0, 1 << 50), "job": flag},
    "list": {},
    "occupancy": {"gpu": GPU},
    "reserve": {"gpu": GPU, "run": RUN, "seconds": SECONDS},
    "release": {"gpu": GPU, "run": RUN},
    "logs": {"run": RUN},
    "cancel": {"run": RUN, "who": WORDS},
    "clean": {"age_seconds": SECONDS, "size_bytes": integer(0, 1 << 62), "dry": flag},
    "examine": {"settings": _SETTINGS},
    "key": {"policy": _POLICY},
}
OFFER: Final = fields({"pack": DIGEST, "bytes": integer(0, MOST_PACK_BYTES)})


def checked(request: Any) -> dict[str, Any]:
    """The request, every field of which is of its kind. Raises HostError for any other."""
    refuse_unless(fields({}) if not isinstance(request, dict) else _operation, request, "it")
    known: dict[str, Any] = request
    kinds = {"op": one_of(*OPERATIONS), "silence": SILENCE, **OPERATIONS[known["op"]]}
    refuse_unless(fields(kinds), known, "it")
    if known["op"] == "start" and known["job"]["run"].split("-")[1] != known["job"]["sha"][:12]:
        raise HostError("the request is refused: its run has the name of another commit", usage=True)
    if known["op"] == "start" and known["job"]["work"]["beside"] != known["job"]["beside"]:
        raise HostError("the request is refused: two commits are to be timed beside the run's", usage=True)
    return known


def told(names: list[str], message: Any) -> dict[str, str]:
    """Secrets by the names that were asked for. Raises HostError for anything else; it never shows any."""
    values = message.get("secrets") if isinstance(message, dict) else None
    if not isinstance(values, dict) or not all(isinstance(values.get(name), str) for name in names):
        raise HostError("the client has not told the secrets of the set-up", "try again")
    return {name: values[name] for name in names}


def _operation(value: Any, name: str) -> str | None:
    return one_of(*OPERATIONS)(value.get("op"), "its op")
