"""What somebody is shown who is to say what changed: `python -m tests.report.pictures FOLDER [--seed N]`.

Plants every regression of `tests.evidence.planted` in the run that is the emulator's baseline, and takes the first
screen of each page in a real browser, on a desk or on a phone, in light or in dark, as chance has it. FOLDER has the
pictures under numbers in an order that says nothing; which is which is in FOLDER/../key.md, for whoever compares the
answers.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

from fmha.harness.archive import read
from fmha.harness.evidence.asked import asked
from fmha.harness.evidence.run_limits import limits_of
from fmha.harness.judge.comparison.comparison import compare
from fmha.harness.report import Evidence, render
from tests.evidence.planted import PLANTED
from tests.report.browser import started

REPOSITORY = Path(__file__).parents[2]
BASELINE = REPOSITORY / "results" / "baselines" / "emulator.json"
SCREENS = {"desk": (1280, 900), "phone": (390, 844)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, help="of the order and the screens [default: another each time]")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    plants = chance.sample(PLANTED, len(PLANTED))
    options.folder.mkdir(parents=True, exist_ok=True)
    base = read(BASELINE)
    key = ["| picture | page | screen | planted | the report's sentence |", "| --- | --- | --- | --- | --- |"]
    with tempfile.TemporaryDirectory() as work, started(Path(work) / "profile") as browser:
        for number, plant in enumerate(plants, 1):
            new = plant.make(base)
            page = Path(work) / "page.html"
            found = compare(base, new, asked(base, new))
            evidence = Evidence(new, "run.json", lambda name: [], base, found, limits_of(new, REPOSITORY))
            page.write_text(render(evidence), encoding="utf-8")
            screen, dark = chance.choice(list(SCREENS)), chance.random() < 0.5
            driver = browser.open(page, *SCREENS[screen], dark=dark)
            driver.save_screenshot(str(options.folder / f"{number:02}.png"))
            told = driver.find_element("tag name", "h1").text.replace("\n", " ")
            key.append(
                f"| {number:02} | {plant.name} | {screen}, {'dark' if dark else 'light'} | {plant.planted} | {told} |"
            )
    (options.folder.parent / "key.md").write_text("\n".join(key) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
