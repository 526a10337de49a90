"""Reads what `ptxas -v` says about one entry."""

from __future__ import annotations

import re

from fmha.harness.contract.protocol import Resources

_ENTRY = re.compile(r"Compiling entry function '([^']+)' for ")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_FRAME = re.compile(r"(?<!\d)(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+)(?:\+\d+)? bytes smem")


def parse_resources(log: str, entry: str) -> Resources | None:
    """The figures of `entry`, or None when the log does not have all of them.

    A stack frame and spills are an entry's own; those of functions it calls out of line are not counted.
    """
    compiling = described = ""
    frame: tuple[int, ...] | None = None
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            compiling = match[1]
        elif match := _PROPERTIES.search(line):
            described = match[1]
        elif (match := _FRAME.search(line)) and described == entry:
            frame = tuple(int(group) for group in match.groups())
        elif (match := _USED.search(line)) and compiling == entry and frame is not None:
            shared = _SHARED.search(line)
            stack, stores, loads = frame
            return Resources(int(match[1]), stores, loads, stack, int(shared[1]) if shared else 0)
    return None
