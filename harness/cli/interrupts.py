"""Ctrl-C while a host elsewhere works for us: the run can go on without us, so the user is asked."""

from __future__ import annotations

import getpass
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from fmha.harness.cli.progress import ProgressDisplay
from fmha.harness.config import Matrix
from fmha.harness.errors import FmhaError, InterruptionError
from fmha.harness.hosts import Host, open_host
from fmha.harness.text import one_line

if TYPE_CHECKING:  # a run on this machine does not load it
    from fmha.harness.hosts.remote import RemoteHost

QUESTION = "\nfmha: [d]etach and let the run go on, [c]ancel it, or [s]tay? "


def attended(progress: ProgressDisplay) -> Callable[[str, Matrix, Path], Host]:
    """Opens hosts as `open_host` does; from then on Ctrl-C asks what is to become of a run that outlives us."""

    def opener(name: str, matrix: Matrix, root: Path) -> Host:
        host = open_host(name, matrix, root)
        if host.exact:
            from fmha.harness.hosts.remote import RemoteHost

            if isinstance(host, RemoteHost):
                attend(host, progress)
        return host

    return opener


def attend(host: RemoteHost, progress: ProgressDisplay) -> None:
    """Makes SIGINT ask, if there is a terminal to ask on. All else that stops the client leaves the run alone."""
    if sys.stdin.isatty() and sys.stderr.isatty():
        before = signal.getsignal(signal.SIGINT)
        signal.signal(signal.SIGINT, lambda number, frame: _ask(host, progress, before, number, frame))


def _ask(host: RemoteHost, progress: ProgressDisplay, before: object, number: int, frame: FrameType | None) -> None:
    """Runs inside the signal handler, so that the stream of events is not torn; it goes on when this returns."""
    if host.run_id is None:
        assert callable(before)
        before(number, frame)
        return
    asking = signal.signal(signal.SIGINT, signal.default_int_handler)  # the second Ctrl-C
    progress.close()
    try:
        answer = _answer()
    except KeyboardInterrupt:
        answer = "c"
    if answer == "d":
        raise InterruptionError(f"detached from run {host.run_id}", next_step=f"fmha attach {host.run_id}")
    if answer == "c":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print(f"\nfmha: cancelling run {host.run_id}", file=sys.stderr, flush=True)
        try:
            host.cancel(f"{getpass.getuser()}, by Ctrl-C")
        except FmhaError as error:
            print(f"fmha: {one_line(str(error))}", file=sys.stderr, flush=True)
    signal.signal(signal.SIGINT, asking)


def _answer() -> str:
    """One letter; the end of the input is taken for detaching."""
    os.write(2, QUESTION.encode())
    while True:
        line = os.read(0, 1024)
        if not line:
            return "d"
        if (letter := line.decode("utf-8", "replace").strip().lower()[:1]) in ("d", "c", "s"):
            return letter
        os.write(2, QUESTION.encode())
