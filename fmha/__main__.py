"""`python -m fmha`, and the command `fmha`.

Nothing is imported before an interrupt has its answer: `signal` itself takes longer than all of this, as it needs enum,
so that its C module is asked. What comes before is Python's own start, and the lines of pip's script.
"""

import os
from _signal import SIG_IGN, SIGINT, getsignal, signal  # type: ignore[import-not-found]


def _leave(number: int, frame: object) -> None:
    """An interrupt while we are being loaded: there is nothing to clear up yet, and a traceback would say nothing."""
    os.write(2, b"fmha: interrupted\n")
    os._exit(4)


if getsignal(SIGINT) is not SIG_IGN:  # nohup means it
    signal(SIGINT, _leave)


def main() -> None:
    """Loads the command line and hands over to it: from then on it answers for signals."""
    from fmha.harness.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
