"""The kernel's side: which kernel runs a configuration, what nvcc is given, how a kernel is launched.

It comes with the commit that is judged. `python -m fmha.harness.kernel_side` answers a judge's questions about it.
"""

from pathlib import Path
from typing import Final

# What it answers, and how: raised when a judge of before could not ask. The other end is
# harness/worker/planner/process.py.
PROTOCOL: Final = 1
_FOLDER: Final = Path(__file__).parent


def place_of(error: BaseException) -> str:
    """The line of the kernel's side that raised it, in parentheses; empty where it comes from elsewhere."""
    place, trace = "", error.__traceback__
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        own = file.parent == _FOLDER and file.name != "__main__.py"
        place = f" (harness/kernel_side/{file.name}:{trace.tb_lineno})" if own else ""
        trace = trace.tb_next
    return place
