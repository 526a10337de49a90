"""The record of a run over the library, results/mutants.json, and the tables of docs/reference/mutants.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tools.mutants.campaign import CampaignPlan, cases_of
from tools.mutants.examine import Kill
from tools.mutants.kept_verdicts import CaseOutcome, MutantCase
from tools.mutants.library import ARCHES, CLASSES, Mutant, held_out

MARK: Final = "<!-- What follows is written by `make mutants`. -->\n"


def record(
    outcomes: Sequence[tuple[MutantCase, CaseOutcome]],
    plan: CampaignPlan,
    source_hash: str,
    mutants: Sequence[Mutant],
    before: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Everything that was seen, and the score: of the cases that are not argued equivalent, how many the default run
    kills. `mutants` is the library, of which these may be a part; of the others, what the record `before` has is kept
    as `earlier`, and is not in the score."""
    held = held_out(mutants)
    cases = [_case(case, outcome, plan, held) for case, outcome in outcomes if outcome.status != "same-code"]
    return {
        "source_hash": source_hash,
        "matrix_sha256": plan.matrix.sha256,
        "seed": plan.matrix.seed,
        "suites": {
            **{f"{suite.name} on {arch}": len(suite.configurations) for arch, suite in plan.default.items()},
            **{suite.name: len(suite.configurations) for suite in plan.others},
        },
        "every": plan.every,
        "library": len(cases_of(mutants, ARCHES)),
        "score": {
            "all": score(cases),
            **{arch: score([case for case in cases if case["arch"] == arch]) for arch in ARCHES},
            "held out": score([case for case in cases if case["held_out"]]),
            **{kind: score([case for case in cases if case["class"] == kind]) for kind in CLASSES},
        },
        "same_code": [
            {"title": case.title, **_known(case, outcome, plan)}
            for case, outcome in outcomes
            if outcome.status == "same-code"
        ],
        "cases": cases,
        "earlier": _earlier(before, mutants, outcomes) if before else [],
    }


def _earlier(
    before: Mapping[str, Any], mutants: Sequence[Mutant], outcomes: Sequence[tuple[MutantCase, CaseOutcome]]
) -> list[dict[str, Any]]:
    """Cases of the record `before` that are in the library as they were, and were not run now."""
    run = {(case.mutant.name, case.arch) for case, _ in outcomes}
    digests = {mutant.name: mutant.digest for mutant in mutants}
    found = [{"sources": before["source_hash"][:16], **case} for case in before["cases"]]
    return [
        case
        for case in [*found, *before.get("earlier", ())]
        if digests.get(case["name"]) == case["digest"] and (case["name"], case["arch"]) not in run
    ]


def score(cases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Cases that count, killed by the default run, and killed by some other suite alone."""
    judged = [case for case in cases if not case["equivalent"]]
    killed = sum(case["default"] is not None for case in judged)
    other = sum(case["default"] is None and any(case["others"].values()) for case in judged)
    argued = len(cases) - len(judged)
    share = round(killed / len(judged), 4) if judged else None
    return {"cases": len(judged), "killed": killed, "others_only": other, "argued": argued, "share": share}


def _case(case: MutantCase, outcome: CaseOutcome, plan: CampaignPlan, held: frozenset[str]) -> dict[str, Any]:
    kills = outcome.as_json()["suites"]
    return {
        "name": case.mutant.name,
        "arch": case.arch,
        "class": case.mutant.kind,
        "did": case.mutant.did,
        "files": sorted({edit.file for edit in case.mutant.edits}),
        "digest": case.mutant.digest,
        "held_out": case.mutant.name in held,
        "equivalent": case.mutant.equivalent.get(case.arch, ""),
        "default": kills.get(plan.default[case.arch].name),
        "others": {name: kill for name, kill in kills.items() if name != plan.default[case.arch].name},
        **({"killers": outcome.killers} if outcome.killers else {}),
        **_known(case, outcome, plan),
    }


def _known(case: MutantCase, outcome: CaseOutcome, plan: CampaignPlan) -> dict[str, Any]:
    """What a later run asks before it believes the outcome, as `outcomes_of` reads it."""
    return {"key": plan.key(case), **({"silent": outcome.silent} if outcome.silent else {})}


def outcomes_of(data: Mapping[str, Any], plan: CampaignPlan) -> dict[str, CaseOutcome]:
    """The outcomes that a record has, by the key of each; cases of one that was written without keys are left out."""
    found: dict[str, CaseOutcome] = {}
    for case in data["cases"]:
        if key := case.get("key"):
            kills = {plan.default[case["arch"]].name: case["default"], **case["others"]}
            killed = any(kills.values())
            found[key] = CaseOutcome(
                "killed" if killed else "survived",
                {name: Kill.read(kill) if kill else None for name, kill in kills.items()},
                case.get("silent", {}),
                case.get("killers", {}),
            )
    for same in data.get("same_code", ()):
        found[same["key"]] = CaseOutcome("same-code", {}, same["silent"])
    return found


def refuted(data: Mapping[str, Any]) -> list[str]:
    """Cases that are argued equivalent and were noticed all the same."""
    noticed = [c for c in data["cases"] if c["equivalent"] and (c["default"] or any(c["others"].values()))]
    return [f"{case['name']} on {case['arch']}" for case in noticed]


def survivors(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Cases that are not argued equivalent and that the default run does not notice."""
    return [case for case in data["cases"] if not case["equivalent"] and case["default"] is None]


def tables(data: Mapping[str, Any]) -> str:
    """Markdown, from MARK to the end of the page."""
    return MARK + "\n" + "\n".join(_lines(data))


def _lines(data: Mapping[str, Any]) -> Iterator[str]:
    yield "## Score"
    yield ""
    counted = ", ".join(f"`{name}` {count}" for name, count in data["suites"].items())
    run = len(data["cases"]) + len(data["same_code"])
    yield f"{'All' if run == data['library'] else run} of the library's {data['library']} cases were run."
    yield f"Configurations: {counted}. Seed {data['seed']}, kernel sources `{data['source_hash'][:16]}`."
    if earlier := data.get("earlier"):
        noticed = sum(case["default"] is not None for case in earlier)
        sources = ", ".join(f"`{name}`" for name in sorted({case["sources"] for case in earlier}))
        yield f"Of {len(earlier)} others results/mutants.json has what was seen on earlier sources, {sources}:"
        yield f"{noticed} were noticed. That is where such a case begins, and it does not count here."
    yield ""
    scores: list[Sequence[str]] = [
        (name, *(str(part[key]) for key in ("cases", "killed", "others_only", "argued")), _percent(part["share"]))
        for name, part in data["score"].items()
        if part["cases"] or part["argued"]
    ]
    outcomes = ("Killed by the default run", "By another suite only", "Argued equivalent", "Score")
    yield from _table("", ("", "Count", *outcomes), scores)
    live = [case for case in survivors(data) if not case["equivalent"]]
    rows: list[Sequence[str]] = [(c["name"], c["arch"], c["did"], _by_others(c)) for c in live]
    yield from _table("Survivors", ("Mutant", "On", "What a person did", "Noticed by"), rows)
    argued: list[Sequence[str]] = [
        (c["name"], c["arch"], c["did"], c["equivalent"]) for c in data["cases"] if c["equivalent"]
    ]
    yield from _table("Argued equivalent", ("Mutant", "On", "What a person did", "Why nothing can notice"), argued)
    for kind in CLASSES:
        killed = [c for c in data["cases"] if c["class"] == kind and c["default"]]
        rows = [
            (c["name"], c["arch"], c["did"], _by(c["default"]), f"`{c['default']['configuration']}`") for c in killed
        ]
        heads = ("Mutant", "On", "What a person did", "Killed by", "First seen with")
        yield from _table(f"Killed: {kind}", heads, rows)


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if not rows:
        return
    if title:
        yield f"## {title}"
        yield ""
    for cells in (heads, ["---"] * len(heads), *rows):
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""


def _by(kill: Mapping[str, Any]) -> str:
    drawn = f", under the drawn {kill['under']}" if kill.get("under") else ""
    return f"{kill['kind']}: " + ", ".join(f"`{word}`" for word in kill["by"]) + drawn


def _by_others(case: Mapping[str, Any]) -> str:
    if not case["others"]:
        return "no other suite was run"
    return ", ".join(f"`{name}`" for name, kill in case["others"].items() if kill) or "nothing"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}%"
