"""`python -m harness.archive` writes schema.json anew."""

from pathlib import Path

from harness.archive.files import schema

Path(__file__).with_name("schema.json").write_text(schema(), encoding="utf-8")
