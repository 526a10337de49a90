"""What a task of a cluster says goes into a file on a disk that may be full."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# A file may have 128 bytes here: the second line fits in part, as in the last room of a disk.
PROGRAM = """
import resource, sys
from pathlib import Path
from fmha.harness.worker.pool import node
node.ROOM_SECONDS = node.ROOM_LOOK_SECONDS = 0.0
resource.setrlimit(resource.RLIMIT_FSIZE, (128, 128))
with node._Said(Path(sys.argv[1])) as say:
    say("first")
    try:
        say("second", text="x" * 128)
    except OSError as error:
        print(error.strerror)
"""


def test_a_disk_that_takes_a_part_of_a_line_is_full(tmp_path: Path) -> None:
    file = tmp_path / "events"
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(file)], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout == "No space left on device\n"
    assert file.read_text(encoding="utf-8") == '{"kind":"first"}\n'
