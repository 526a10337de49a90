"""What a worker of xdist says of its tests: three reports and two lines more for each, of which one report is needed.

Each is packed, sent and read by two processes. That a test has been set up and taken down without a word is what its
outcome says already; with a word, or in vain, it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

Send = Callable[..., None]


def shorten(config: pytest.Config) -> None:
    """Has the worker of this process, if it is one, leave out what says nothing. Its own durations are all there."""
    for plugin in config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor":
            plugin.sendevent = shortened(plugin.sendevent)


def shortened(send: Send) -> Send:
    def send_what_counts(name: str, **event: Any) -> None:
        if name not in ("logstart", "logfinish") and not (name == "testreport" and _says_nothing(event["data"])):
            send(name, **event)

    return send_what_counts


def _says_nothing(report: Mapping[str, Any]) -> bool:
    return report["when"] != "call" and report["outcome"] == "passed" and not report["sections"]
