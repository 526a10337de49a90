"""Runs that outlive their client: left behind on purpose, and taken up again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from harness import archive
from harness.config import interpret
from harness.errors import ExitCode, UserError
from harness.hosts import ledger, open_host
from harness.hosts.remote import RemoteHost, stored_job
from harness.stages.outcome import Observer
from harness.stages.pipeline import HostOpener, Request, Show, begin, conclude, prepare, prepare_for
from harness.stages.places import Place, find_checkout
from harness.stages.preflight import GitFacts


def submit(request: Request, observer: Observer, opener: HostOpener = open_host) -> str:
    """Starts a run on a host that keeps it, and leaves. Returns its name; raises as `execute` does."""
    prepared = prepare(request, opener)
    host = prepared.host
    if not isinstance(host, RemoteHost):
        raise UserError(f"a run on {request.host!r} ends with this command", next_step="leave out --detach")
    begin(prepared, observer)
    host.leave()
    assert host.run_id is not None
    return host.run_id


def attach(
    run: str, place: Place, results: Path | None, observer: Observer, show: Show, opened: Callable[[RemoteHost], None]
) -> ExitCode:
    """Follows a run from its first event to its verdict, archives it unless that was done before, and shows it.

    The plan is made anew from what the run was started with, whatever the checkout here is at now.
    """
    job = stored_job(place.host, run)
    order = job["order"]
    matrix = interpret(order["matrix"], f"matrix.yaml of run {run}", order["matrix_sha256"])
    request = Request(place.root, place.host.name, results=results, **order["request"])
    host = RemoteHost(place.host, place.root)
    host.resume(run, observer.note)
    opened(host)
    git = GitFacts(place.root, job["sha"], order["branch"], ())
    prepared = prepare_for(request, git, matrix, host)
    archive.prepare(prepared.results)
    return conclude(prepared, observer, show)


def place_of(run: str, directory: Path, host: str | None) -> Place:
    """Where a run is: on the host that is named, or on the one it was started on from this checkout."""
    checkout = find_checkout(directory)
    name = host or ledger.host_of(checkout.root, run)
    if name is None:
        raise UserError(f"run {run!r} was not started from this checkout", next_step="name its host with --host")
    return checkout.named(name)
