"""Messages of an agent and events of a run, as JSON only: harness/hosts/host_answers.py says what may stand there.

It is apart since what checks them is loaded while the host is at work already.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

MOST_LINE_BYTES = 160 << 20  # of one message: the supervisor's longest event, quoted once more
MOST_EVENT_BYTES = 1 << 30  # of all events of a run


def message_of(line: bytes) -> dict[str, Any]:
    """One message of an agent. Raises ValueError for what is none."""
    try:
        message = json.loads(line, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(message, dict):
        raise ValueError("no object")
    return message


def event_of(line: bytes) -> dict[str, Any] | None:
    """One event of a run; None for a line that a crash has torn."""
    try:
        event = message_of(line)
    except ValueError:
        return None
    return event if isinstance(event.get("kind"), str) else None


def _refuse(token: str) -> NoReturn:
    raise ValueError(f"{token} is no JSON number")
