"""`python -m fmha`, and the command `fmha`.

Nothing is imported before an interrupt has its answer: `signal` itself takes longer than all of this, as it needs enum,
so that its C module is asked. What comes before is Python's own start, and the lines of pip's script.
"""

import os
from _signal import SIG_IGN, SIGINT, getsignal, signal  # type: ignore[import-not-found]

# Commands that run nothing of a user's in this process, whose objects may want an end of their own.
QUICK = ("run-matrix", "attach", "logs", "cancel", "clean", "ps", "hosts")

# Of a command that was interrupted: an interpreter that ends as usual says instead that a signal has ended it, if the
# interrupt came in code that was a string (CPython's run_eval_code_obj), such as that of a dataclass.
INTERRUPTED = 4


def _leave(number: int, frame: object) -> None:
    """An interrupt while we are being loaded: there is nothing to clear up yet, and a traceback would say nothing."""
    os.write(2, b"fmha: interrupted\n")
    os._exit(INTERRUPTED)


if getsignal(SIGINT) is not SIG_IGN:  # nohup means it
    signal(SIGINT, _leave)


def main() -> None:
    """Loads the command line and hands over to it: from then on it answers for signals."""
    from fmha.harness.cli import main as command_line

    try:
        command_line()
    except SystemExit as stop:
        import sys

        quick = sys.argv[1:2] and sys.argv[1] in QUICK
        if isinstance(stop.code, int) and (quick or stop.code == INTERRUPTED):
            _end(stop.code)
        raise


def _end(code: int) -> None:
    """What an interpreter does at its end, without taking each module apart, which takes 25 ms."""
    import atexit
    import sys
    import threading

    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:  # closed by whoever started us
                stream.flush()
        except (OSError, ValueError):  # nobody reads it any more
            code = code or 3
    os._exit(code)


if __name__ == "__main__":
    main()
