"""What regress sees of errors that grow: a table of docs/reference/verdict-trials.md, from the seeds that the
baseline measured.

    python -m tests.evidence.noise_rates

Each configuration of the emulator's baseline under each of its seeds, as it was measured and with an error added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fmha.harness import archive
from fmha.harness.judge.comparison.noise import LEAST_DEVIATION, band_of, scaled
from fmha.harness.judge.configuration import parse_id

BASELINE = Path(__file__).resolve().parents[2] / "results" / "baselines" / "emulator.json"
GROWN: Mapping[str, tuple[str, Callable[[float], float]]] = {
    "nothing": ("cosine", lambda value: value),
    "1 - cosine larger by 5e-7": ("cosine", lambda value: value - 5e-7),
    "1 - cosine larger by 2e-6": ("cosine", lambda value: value - 2e-6),
    "relative_l2 larger by half": ("relative_l2", lambda value: 1.5 * value),
}
ROWS = ((1, 1), (2, 8), (9, 64), (65, 1 << 30))


def told(values: Sequence[float], metric: str, grown: Callable[[float], float], comparisons: int) -> list[bool]:
    """Under each seed, whether the value is beyond the noise of all and larger than it was."""
    limit = band_of(metric, values).limit(comparisons)
    return [scaled(metric, grown(value)) > max(limit, scaled(metric, value) + LEAST_DEVIATION) for value in values]


def main() -> None:
    base = archive.read(BASELINE)
    assert base.acceptance is not None
    noise = base.acceptance.noise
    comparisons = sum(map(len, noise.values()))
    print("| rows | " + " | ".join(GROWN) + " |")
    for least, most in ROWS:
        names = [name for name in noise if least <= parse_id(name).t * parse_id(name).heads <= most]
        cells = []
        for metric, grown in GROWN.values():
            found = [one for name in names for one in told(noise[name][metric], metric, grown, comparisons)]
            cells.append(f"{sum(found)} of {len(found)}")
        print(f"| {least} to {most} | " + " | ".join(cells) + " |")
    for name, (metric, grown) in GROWN.items():
        each = [told(noise[configuration][metric], metric, grown, comparisons) for configuration in noise]
        runs = sum(any(seeds) for seeds in zip(*each, strict=True))
        print(f"{name}: {runs} of {len(base.acceptance.seeds)} runs are told")


if __name__ == "__main__":
    main()
