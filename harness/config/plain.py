"""A matrix of the attention kernels alone as plain data, and back: what matrix_cache.py writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from fmha.harness.config.kernels import Gates
from fmha.harness.config.matrix_model import Guard, Later, Limits, Matrix, RandomSuite
from fmha.harness.config.ours import Ours
from fmha.harness.config.peer_kernels import peers_of
from fmha.harness.config.settings import HostSettings, RemoteSettings, SecretSource
from fmha.harness.judge.configuration import OURS, Configuration, parse_id
from fmha.harness.judge.limits import Biases, ResourceLimits, Thresholds
from fmha.harness.judge.random_cases import Space

_TUPLES = ("setup_files", "protected")  # of RemoteSettings


def plain_of(matrix: Matrix) -> dict[str, Any]:
    """Configurations stand as their names, and the digest of what decides a verdict beside them: to make it takes every
    one of them."""
    ours = matrix.kernels[OURS]
    guard = matrix.guard
    assert isinstance(ours, Ours)
    return {
        "default_suite": matrix.default_suite,
        "seed": matrix.seed,
        "suites": {name: [item.id for item in items] for name, items in matrix.suites.items()},
        "random_suites": {name: _random(suite) for name, suite in matrix.random_suites.items()},
        "guard": {
            "head_dim": guard.head_dim,
            "fallback": guard.fallback.id,
            "thresholds": dict(guard.thresholds.limits),
        },
        "limits": asdict(matrix.limits),
        "hosts": {name: _host(host) for name, host in matrix.hosts.items()},
        "sha256": matrix.sha256,
        "gates": {
            "thresholds": dict(ours.gates.thresholds.limits),
            "resources": asdict(ours.gates.resources) if ours.gates.resources else None,
            "biases": asdict(ours.gates.biases) if ours.gates.biases else None,
        },
        "natures": {name: dict(own.limits) for name, own in ours.natures.items()},
        "judged_sha256": matrix.judged_sha256,
    }


def matrix_of(found: Mapping[str, Any]) -> Matrix:
    """The matrix again, whose suites are made when they are first asked for."""
    gates, guard = found["gates"], found["guard"]
    ours = Ours(
        Gates(
            Thresholds(gates["thresholds"]),
            ResourceLimits(**gates["resources"]) if gates["resources"] else None,
            Biases(**gates["biases"]) if gates["biases"] else None,
        ),
        {name: Thresholds(limits) for name, limits in found["natures"].items()},
    )
    matrix = Matrix(
        default_suite=found["default_suite"],
        seed=found["seed"],
        suites=Later({name: partial(_suite, tuple(names)) for name, names in found["suites"].items()}),
        random_suites={
            name: RandomSuite(Space(tuple(suite["head_dims"]), *suite["most"]), suite["cases"])
            for name, suite in found["random_suites"].items()
        },
        guard=Guard(guard["head_dim"], parse_id(guard["fallback"]), Thresholds(guard["thresholds"])),
        limits=Limits(**found["limits"]),
        hosts={name: _settings(host) for name, host in found["hosts"].items()},
        sha256=found["sha256"],
        kernels={OURS: ours, **peers_of(ours)},
    )
    matrix.__dict__["judged_sha256"] = found["judged_sha256"]  # what cached_property would keep there
    return matrix


def _suite(names: tuple[str, ...]) -> tuple[Configuration, ...]:
    return tuple(map(parse_id, names))


def _random(suite: RandomSuite) -> dict[str, Any]:
    space = suite.space
    assert isinstance(space, Space)
    most = [space.rows, space.keys, space.topk, space.batch, space.work]
    return {"head_dims": list(space.head_dims), "most": most, "cases": suite.cases}


def _host(settings: HostSettings) -> dict[str, Any]:
    found = asdict(settings)
    if settings.remote is not None:
        found["remote"]["own"] = sorted(settings.remote.own)
    return found


def _settings(found: Mapping[str, Any]) -> HostSettings:
    if (remote := found["remote"]) is None:
        return HostSettings(**found)
    secrets = {name: SecretSource(item["variable"], tuple(item["command"])) for name, item in remote["secrets"].items()}
    lists = {name: tuple(remote[name]) for name in _TUPLES}
    made = RemoteSettings(**{**remote, **lists, "secrets": secrets, "own": frozenset(remote["own"])})
    return HostSettings(**{**found, "remote": made})
