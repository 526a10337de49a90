"""`python -m fmha.harness.archive` writes schema.json anew."""

from pathlib import Path

from fmha.harness.archive.record_files import schema

Path(__file__).with_name("schema.json").write_text(schema(), encoding="utf-8")
