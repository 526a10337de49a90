"""rich's console, but for what it does about a closed pipe."""

from __future__ import annotations

import rich.console


class Console(rich.console.Console):
    """rich's console, whose broken pipe is an error like others."""

    def on_broken_pipe(self) -> None:
        """BrokenPipeError, which has its answer like every error. rich would end the program with SystemExit."""
        raise BrokenPipeError
