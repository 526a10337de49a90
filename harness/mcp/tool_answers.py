"""What tools answer: a record's or a report's essence, in a size that can be read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

MOST_CHARACTERS: Final = 12_000  # of an answer as JSON
_LENGTHS: Final = (40, 20, 10, 5, 3, 1)  # of its lists, the longest that fits


def bounded(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The answer with lists cut to a length at which all of it fits. What is cut says how much was left out."""
    cut: dict[str, Any] = {}
    for length in _LENGTHS:
        cut = {name: _cut(value, length) for name, value in answer.items()}
        if len(json.dumps(cut)) <= MOST_CHARACTERS:
            return cut
    return {"left_out": "the answer is too long: name one case, or one launch"}


def _cut(value: Any, length: int) -> Any:
    if isinstance(value, Mapping):
        items = list(value.items())
        made = {str(name): _cut(item, length) for name, item in items[: 4 * length]}
        return made | ({"left_out": len(items) - 4 * length} if len(items) > 4 * length else {})
    if isinstance(value, list):
        kept = [_cut(item, length) for item in value[:length]]
        return kept + ([f"{len(value) - length} more left out"] if len(value) > length else [])
    if isinstance(value, str) and len(value) > 600:
        return f"{value[:600]}... ({len(value) - 600} more characters)"
    return value


def verdict(record: Mapping[str, Any]) -> dict[str, Any]:
    """Of a run: the verdict, and what does not pass with its reasons and findings."""
    configurations = record.get("configurations", [])
    wrong = [item for item in configurations if item["status"] not in ("pass", "not-run")]
    builds = [item for item in record.get("variants", []) if item.get("error")]
    return {
        "verdict": record["verdict"]["word"],
        "passed": record["verdict"]["passed"],
        "total": record["verdict"]["total"],
        "lenient_rules": sum(item["stats"].get("profile") == "lenient" for item in configurations),
        "not_run": sum(item["status"] == "not-run" for item in configurations),
        "wrong": [
            {"case": item["id"], "status": item["status"], "reasons": item["reasons"], "findings": findings(item)}
            for item in wrong
        ],
        "build_errors": [{"build": item["name"], "error": item["error"]} for item in builds],
        "cost": [
            {
                "build": item["name"],
                "registers": item["resources"]["registers"],
                "spilled_bytes": item["resources"]["spill_stores"],
            }
            for item in record.get("variants", [])
            if item.get("resources")
        ],
    }


def findings(item: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each with its rule, for `explain`, and both places in the source where there are two."""
    told = []
    for found in item.get("findings") or []:
        where = found.get("where") or {}
        named = {name: where[name] for name in ("source", "other_source", "schedule", "count") if where.get(name)}
        if "source" not in named:
            named |= {name: where[name] for name in ("ptx_line", "ptx") if where.get(name)}
        told.append({"rule": found["rule"], "severity": found["severity"], "message": found["message"], **named})
    return told
