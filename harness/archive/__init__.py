"""The archive: one JSON file a run, versioned, checksummed, written atomically; and an index over the files."""

from harness.archive.files import dumps, prepare, read, replace, schema, write
from harness.archive.find import BASELINES, Found, find
from harness.archive.index import Index
from harness.archive.record import RunRecord

__all__ = [
    "BASELINES",
    "Found",
    "Index",
    "RunRecord",
    "dumps",
    "find",
    "prepare",
    "read",
    "replace",
    "schema",
    "write",
]
