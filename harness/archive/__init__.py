"""The archive: one JSON file a run, versioned, written atomically."""

from harness.archive.files import dumps, prepare, read, schema, write
from harness.archive.record import RunRecord

__all__ = ["RunRecord", "dumps", "prepare", "read", "schema", "write"]
