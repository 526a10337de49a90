"""Syntax trees of our own Python. To parse all of it takes four seconds, so tests that look at it share a process, by
`pytestmark = OF_ONE_PROCESS`, and with it the trees."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

OF_ONE_PROCESS = pytest.mark.xdist_group("syntax")


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), path)
