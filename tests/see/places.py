"""A line of our kernel at which debuggers stop, found by its text: where an output's columns are stored."""

from pathlib import Path

ROLE = Path(__file__).parents[2] / "kernel/sm100/softmax_role.cuh"
LINE = 1 + next(at for at, text in enumerate(ROLE.read_text().splitlines()) if "store_output(params," in text)
