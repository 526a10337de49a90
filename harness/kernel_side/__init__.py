"""The kernel's side: which kernel runs a configuration, what nvcc is given, how a kernel is launched.

It comes with the commit that is judged. `python -m fmha.harness.kernel_side` answers a judge's questions about it.
"""

from typing import Final

# What it answers, and how: raised when a judge of before could not ask. harness/worker/planner.py has the other end.
PROTOCOL: Final = 1
