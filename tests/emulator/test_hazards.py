"""Every rule of the core: documented, triggered by a micro-kernel, and silent on the nearest correct one."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from micro import run_micro

from emulator import Report
from emulator.device import SCHEDULES, Profile, Schedule
from emulator.rules import RULES
from emulator.rules.__main__ import page

ROOT = Path(__file__).parents[2]
EXAMPLES = Path(__file__).parent / "hazards"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.diff"))
NEVER = {"internal"}  # no program triggers it


class Example(NamedTuple):
    rule: str
    broken: str
    correct: str
    settings: dict[str, str]  # the `// key: value` lines: setup, block, also (another rule of the broken one)

    def run(self, body: str, schedule: Schedule = "realistic", profile: Profile = "strict", seed: int = 0) -> Report:
        options: dict[str, Any] = {"schedule": schedule, "profile": profile, "seed": seed}
        if "max_instructions" in self.settings:
            options["max_instructions"] = int(self.settings["max_instructions"])
        setup, block = self.settings.get("setup", "none"), int(self.settings.get("block", 128))
        return run_micro(body, setup, block, **options)[0]


def load(name: str) -> Example:
    lines = (EXAMPLES / f"{name}.diff").read_text().splitlines()
    code = [line for line in lines if not line.startswith("//")]
    assert all(line[:2] in ("  ", "- ", "+ ") for line in code), "an example's line starts with '  ', '- ' or '+ '"
    settings = dict(re.findall(r"^// (\w+): (.*)$", "\n".join(lines), re.MULTILINE))
    broken, correct = ("\n".join(x[2:] for x in code if x[0] != other) for other in "+-")
    return Example(name.partition(".")[0], broken, correct, settings)


def rules(report: Report) -> set[str]:
    return {finding.rule for finding in report.findings}


def rules_in_the_core() -> set[str]:
    """Rules are the hyphenated literals of the sources, and the single words where a rule is expected."""
    text = "\n".join(path.read_text() for path in sorted((ROOT / "emulator/core").glob("*.[ch]pp")))
    hyphenated = re.findall(r'"([a-z0-9]+(?:-[a-z0-9]+)+)"', text)
    single = re.findall(r'(?:\bFault\(\s*|return \{\s*|report_deadlock\(cluster, )"([a-z0-9]+)"', text)
    return {*hyphenated, *single}


def test_the_table_has_every_rule_of_the_core_and_no_other() -> None:
    assert rules_in_the_core() == set(RULES)


def test_every_rule_has_an_example() -> None:
    assert {load(name).rule for name in NAMES} == set(RULES) - NEVER


def test_the_page_is_current() -> None:
    assert (ROOT / "docs/hazards.md").read_text() == page(EXAMPLES)


@pytest.mark.parametrize("name", NAMES)
def test_the_broken_kernel_is_reported(name: str) -> None:
    example = load(name)
    report = example.run(example.broken)
    allowed = {example.rule, *example.settings.get("also", example.rule).split(", ")}
    assert example.rule in rules(report), report.findings
    assert rules(report) <= allowed, [str(f) for f in report.findings]
    finding = next(f for f in report.findings if f.rule == example.rule)
    assert finding.severity == RULES[example.rule].severity
    assert finding.place is not None
    assert finding.remedy == RULES[example.rule].remedy


@pytest.mark.parametrize("schedule", [*SCHEDULES])
@pytest.mark.parametrize("name", NAMES)
def test_the_correct_kernel_is_not(name: str, schedule: Schedule) -> None:
    example = load(name)
    for seed in range(4 if schedule == "random" else 1):
        report = example.run(example.correct, schedule, seed=seed)
        assert report.findings == (), [str(f) for f in report.findings]


@pytest.mark.parametrize("name", NAMES)
def test_the_lenient_profile_leaves_out_what_the_table_says(name: str) -> None:
    example = load(name)
    report = example.run(example.broken, profile="lenient")
    assert (example.rule in rules(report)) == RULES[example.rule].lenient
