"""Clean commits under many seeds: regress has nothing to say of any.

    python -m tests.evidence.clean_commits --seeds 10

makes a repository of the kernels with ten commits that change the source of that of head_dim 64, and nothing that it
computes; `fmha regress --seed N` holds each against the first, under every one of so many seeds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from fmha.harness.config import load
from fmha.harness.judge.configuration import Configuration
from tests.evidence.seeded_history import REPOSITORY, Change, History, Planned


def edit(file: str, old: str, new: str) -> Change:
    """`old` in kernel/sm100/`file`, wherever it stands, becomes `new`; AssertionError where it stands nowhere."""

    def change(root: Path) -> None:
        path = root / "kernel" / "sm100" / file
        text = path.read_text()
        assert old in text, (file, old)
        path.write_text(text.replace(old, new))

    return change


COMMITS = (
    Planned("Start", lambda root: None),
    Planned("Say what a role is", edit("softmax_role.cuh", "#pragma once", "// A role of four warps.\n#pragma once")),
    Planned("Say it of the MMA's", edit("mma.cuh", "#pragma once", "// The role of one lane.\n#pragma once")),
    Planned("Rename a local", edit("softmax_role.cuh", "tile_max", "largest")),
    Planned("Rename a parameter", edit("mma.cuh", "first_tile", "is_first")),
    Planned("Lines apart", edit("load.cuh", "namespace fmha {", "\n\nnamespace fmha {\n")),
    Planned("Factors change places", edit("softmax_role.cuh", "state.max * params.scale", "params.scale * state.max")),
    Planned("A number as a sum", edit("fmha_fwd.cu", "kMmaWarp = 4;", "kMmaWarp = 2 + 2;")),
    Planned("Assert what holds", edit("fmha_fwd.cu", "namespace fmha {", "static_assert(true);\nnamespace fmha {")),
    Planned("The larger on the left", edit("mma.cuh", "if (j + 1 < tiles)", "if (tiles > j + 1)")),
    Planned("A loop's end by another sign", edit("softmax_role.cuh", "j < work.tiles; ++j", "work.tiles > j; ++j")),
)


def configurations() -> list[Configuration]:
    """Those of the default suites that one kernel runs, every kind of data among them."""
    matrix = load(REPOSITORY)
    found = matrix.configurations(matrix.default_suite, matrix.seed)
    return [item for item in found if item.head_dim == 64 and item.p_path in ("auto", "tmem")]


def main() -> int:
    """0 when there was no alarm."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    seeds = parser.parse_args().seeds
    chosen = configurations()
    print(f"{len(chosen)} configurations, data {', '.join(sorted({item.data for item in chosen}))}", flush=True)
    alarms = 0
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder), COMMITS, {"cases": [item.id for item in chosen]})
        history.accept(max(seeds, 20))
        for place, planned in list(enumerate(COMMITS))[1:]:
            found = [history.regress(place, "--seed", str(seed)) for seed in range(seeds)]
            told = [item["text"] for one in found for item in one["regressions"]]
            red = sum(one["code"] != 0 for one in found)
            alarms += red
            print(f"{planned.subject}: {red} alarms under {seeds} seeds", *told, sep="\n  ", flush=True)
    print(f"{alarms} alarms of {seeds * (len(COMMITS) - 1)} runs")
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main())
