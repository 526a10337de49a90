"""Progress of a run: a live bar on a terminal, plain lines anywhere else, nothing when quiet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO

from fmha.harness.judge.status import Status
from fmha.harness.stages.outcome import Observer, Outcome
from fmha.harness.text import one_line, printable

if TYPE_CHECKING:
    from fmha.harness.cli.screen import Console


class ProgressDisplay(Observer, Protocol):
    """What a run shows on a terminal while it goes on."""

    def close(self) -> None:
        """Leave the terminal to others. May be called again."""


class Silent:
    """Says only what has to be told."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def stage(self, name: str, detail: str) -> None: ...
    def note(self, text: str) -> None: ...
    def started(self, configuration: str) -> None: ...
    def finished(self, outcome: Outcome, done: int, total: int) -> None: ...
    def close(self) -> None: ...

    def tell(self, text: str) -> None:
        print(printable(f"fmha: {text}"), file=self._stream, flush=True)


class ProgressLines:
    """One line a fact, flushed at once, for logs and pipes; every start too when `verbose`."""

    def __init__(self, stream: TextIO, verbose: bool = False) -> None:
        self._stream = stream
        self._verbose = verbose

    def stage(self, name: str, detail: str) -> None:
        self._print(f"{name}: {detail}")

    def note(self, text: str) -> None:
        self._print(f"  {text}")

    def tell(self, text: str) -> None:
        self._print(f"fmha: {text}")

    def started(self, configuration: str) -> None:
        if self._verbose:
            self._print(f"  {configuration} started")

    def finished(self, outcome: Outcome, done: int, total: int) -> None:
        self._print(f"  [{done:{len(str(total))}}/{total}] {_words(outcome)}")

    def close(self) -> None: ...

    def _print(self, text: str) -> None:
        print(one_line(text), file=self._stream, flush=True)


class Live:
    """A bar that names the stage and the configuration under way; what does not pass stays above it."""

    def __init__(self, console: Console) -> None:
        # Loaded for a terminal only.
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._console = console
        self._progress = Progress(
            TextColumn("{task.fields[stage]}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[current]}", markup=False),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("", total=None, stage="", current="")
        self._progress.start()

    def stage(self, name: str, detail: str) -> None:
        self._progress.update(self._task, stage=name, current=printable(detail))

    def note(self, text: str) -> None:
        self._progress.update(self._task, current=printable(text))

    def tell(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(printable(f"fmha: {text}")), soft_wrap=True)

    def started(self, configuration: str) -> None:
        self._progress.update(self._task, current=printable(configuration))

    def finished(self, outcome: Outcome, done: int, total: int) -> None:
        self._progress.update(self._task, completed=done, total=total)
        if outcome.status not in (Status.PASS, Status.NOT_RUN):
            from rich.text import Text

            from fmha.harness.stages.report import STYLES

            self._console.print(Text(one_line(_words(outcome)), STYLES[outcome.status]), soft_wrap=True)

    def close(self) -> None:
        self._progress.stop()


@contextmanager
def progress_for(stream: TextIO, quiet: bool, verbose: bool = False) -> Iterator[ProgressDisplay]:
    """The display that suits the stream, closed at the end. Quiet wins over verbose."""
    display: ProgressDisplay
    if quiet:
        display = Silent(stream)
    elif verbose:
        display = ProgressLines(stream, verbose)
    else:
        from fmha.harness.cli.screen import Console  # here, for who is quiet does not wait for rich

        console = Console(file=stream)
        display = Live(console) if console.is_terminal else ProgressLines(stream, verbose)
    try:
        yield display
    finally:
        display.close()


def _words(outcome: Outcome) -> str:
    text = f"{outcome.id} {outcome.status}"
    if outcome.measurement:
        text += f" cosine {outcome.measurement.cosine:.8f}"
    if outcome.seconds:
        text += f" {outcome.seconds:.2f} s"
    reason = outcome.reasons[0].splitlines() if outcome.reasons else []
    return f"{text}: {reason[0]}" if reason else text
