"""Runs that outlive their client: left behind on purpose, and taken up again."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fmha.harness import archive
from fmha.harness.config import MATRIX_FILE, HostSettings, Matrix, interpret
from fmha.harness.errors import ExitCode, InfrastructureError, UserError
from fmha.harness.git import git
from fmha.harness.hosts import declared_by, installed_commit, ledger, open_host
from fmha.harness.hosts.host_answers import Asked, StoredJob
from fmha.harness.hosts.remote import RemoteHost, settings_of, stored_job
from fmha.harness.stages import apart
from fmha.harness.stages.host_checkout import RunPlace, find_checkout
from fmha.harness.stages.laid_out import laid_out
from fmha.harness.stages.outcome import Observer
from fmha.harness.stages.pipeline import HostOpener, Request, Show, begin, conclude, prepare, prepare_for
from fmha.harness.stages.preflight import GitFacts

RUN = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{12}-[0-9a-f]{8}")


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
    run: str,
    place: RunPlace,
    results: Path | None,
    observer: Observer,
    show: Show,
    opened: Callable[[RemoteHost], None],
) -> ExitCode:
    """Follows a run from its first event to its verdict, archives it unless that was done before, and shows it.

    The plan is made anew from what the run was started with, whatever the checkout here is at now.
    """
    if not RUN.fullmatch(run):
        raise UserError(f"{run!r} is no run", next_step="fmha ps lists the runs")
    job = stored_job(place.host, run)
    mine = ledger.entry(place.root, run)
    _compare(job, mine, run)
    matrix = _matrix(job, mine, place.root, place.host, run)
    alike = apart.alike(place.root, job.sha) if job.judge is None else None
    request = Request(place.root, host=place.host.name, results=results, alike=alike, **_choices(job))
    host = RemoteHost(place.host, place.root, declared_by(matrix))
    host.resume(run, job.beside, job.judge, observer.note)
    opened(host)
    facts = GitFacts(place.root, job.sha, job.order.branch, ())
    prepared = prepare_for(request, facts, matrix, host)
    if mine is None or mine.request is None:
        from fmha.harness.archive.record import Elsewhere  # the model of records, which few who attach wait for

        prepared = replace(prepared, elsewhere=Elsewhere(host=place.host.name, judge=job.judge))
    archive.prepare(prepared.results)
    return conclude(prepared, observer, show)


def _compare(job: StoredJob, mine: ledger.LedgerEntry | None, run: str) -> None:
    """What the host says that it was asked is what this checkout has asked, where that is known."""
    if mine is None or mine.request is None:
        return
    theirs = job.order.request.model_dump()
    asked = Asked.model_validate_json(json.dumps(mine.request)).model_dump()
    for what, ours, other in (
        ("commit", mine.sha, job.sha),
        ("matrix.yaml", mine.matrix_sha256, job.order.matrix_sha256),
        ("judge", mine.judge, job.judge or "" if mine.judge is not None else None),
        *((name, asked[name], theirs[name]) for name in asked),
    ):
        if ours != other:
            raise InfrastructureError(
                f"the host has another {what} than was asked for: {other!r}, not {ours!r}",
                where=f"run {run}",
                next_step="the run was changed there, and is not archived",
            )


def _choices(job: StoredJob) -> dict[str, Any]:
    asked = job.order.request.model_dump()
    return {name: tuple(value) if isinstance(value, list) else value for name, value in asked.items()}


def _matrix(job: StoredJob, mine: ledger.LedgerEntry | None, root: Path, host: HostSettings, run: str) -> Matrix:
    """The commit's own matrix.yaml, from the repository here: which gates hold is not for the host to say."""
    own = job.order.own
    if own and job.judge != installed_commit.committed(root, settings_of(host).device):
        raise UserError(
            f"run {run} is judged by another fmha than this one", next_step="attach with the one that started it"
        )
    commit = job.sha if own else job.judge or job.sha
    if commit != job.sha and git(root, "merge-base", "--is-ancestor", commit, job.sha).returncode != 0:
        raise InfrastructureError(
            f"the host says that commit {commit} judges {job.sha}, which does not come from it", where=f"run {run}"
        )
    done = git(root, "cat-file", "blob", f"{commit}:{MATRIX_FILE}")
    if done.returncode != 0:
        raise UserError(
            f"commit {commit} is not in this checkout, and with it not the gates that run {run} has to pass",
            next_step="git fetch it, or attach where the run was started",
        )
    here, asked = hashlib.sha256(done.stdout.encode()).hexdigest(), mine.matrix_sha256 if mine else ""
    if asked not in ("", here) and job.judge and not own:
        raise InfrastructureError(f"commit {commit} is not the one that was asked to judge", where=f"run {run}")
    text, name = done.stdout.removeprefix("\ufeff"), f"matrix.yaml of commit {commit[:12]}"
    return interpret(text, name, asked or here, lambda: laid_out(root, commit, "whole"))


def place_of(run: str, directory: Path, host: str | None) -> RunPlace:
    """Where a run is: on the host that is named, or on the one it was started on from this checkout."""
    checkout = find_checkout(directory)
    if host is None:
        known = ledger.entry(checkout.root, run)
        if known is None:
            raise UserError(f"run {run!r} was not started from this checkout", next_step="name its host with --host")
        host = known.host
    return checkout.named(host)
