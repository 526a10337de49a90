"""`python -m fmha`, and the command `fmha`."""

import os
import signal


def _leave(number: int, frame: object) -> None:
    """An interrupt while we are being loaded: there is nothing to clear up yet, and a traceback would say nothing."""
    os.write(2, b"fmha: interrupted\n")
    os._exit(4)


if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # nohup means it
    signal.signal(signal.SIGINT, _leave)


def main() -> None:
    """Loads the command line and hands over to it: from then on it answers for signals."""
    from fmha.harness.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
