"""PTX by another compiler than nvcc: `python -m fmha.harness.worker.subjects.compile WHERE NAME CASE ARCH OUT`.

In a process of its own, so that a compiler that hangs or falls costs its own variant alone. WHERE is FILE.py:CLASS
below the folder it is started in, NAME what matrix.yaml calls the kernel.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fmha.harness.errors import UserError
from fmha.harness.judge.case import parse_case
from fmha.harness.worker.subjects.loading import load_kernel, told


def main(where: str, name: str, case: str, arch: str, out: str) -> int:
    """Compiles a case of an adapter's kernel into `out`. 1, with the error printed, where that fails."""
    root = Path.cwd()
    try:
        kernel = load_kernel(root, where)
    except UserError as error:
        print(f"error: {error}")
        return 1
    try:
        text = kernel.compile(parse_case(name, kernel.fields, case), arch)
    except Exception as error:
        print(f"error: {told(error, root / where.rpartition(':')[0])}")
        return 1
    assert text is not None
    Path(out).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
