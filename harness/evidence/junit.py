"""A run as JUnit XML, which every CI system reads: one test case a configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from fmha.harness import archive
from fmha.harness.judge.comparison.missed import missed
from fmha.harness.judge.status import RED, Status
from fmha.harness.stages.report import Cause, cause_of

if TYPE_CHECKING:  # comparison brings numpy, which no run needs
    from fmha.harness.archive import RunRecord
    from fmha.harness.archive.record import ConfigurationRecord
    from fmha.harness.judge.comparison.comparison import Regression
    from fmha.harness.judge.findings import FindingRecord
    from fmha.harness.judge.pooled import Pooled

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, production Char
_ERRORS = frozenset({Status.CRASH, Status.TIMEOUT, Status.BUILD_ERROR, Status.ADAPTER_ERROR, Status.INFRA_ERROR})


def write(path: Path, record: RunRecord, regressions: Sequence[Regression] = ()) -> None:
    """Write the file, whole or not at all. Regressions are test cases of their own. Raises InfrastructureError."""
    content: bytes = ElementTree.tostring(document(record, regressions), encoding="utf-8", xml_declaration=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    archive.replace(content + b"\n", path)


def document(record: RunRecord, regressions: Sequence[Regression] = ()) -> ElementTree.Element:
    """The element `testsuites`. Crashes, timeouts and failed builds are errors, wrong numbers and hazards failures."""
    root = ElementTree.Element("testsuites", name="fmha")
    suite = ElementTree.SubElement(root, "testsuite")
    cases = [_case(suite, item, record) for item in record.configurations]
    cases += [_pooled(suite, figure) for figure in missed(record)]
    cases += [_regression(suite, item) for item in regressions]
    counts = {kind: sum(case.find(kind) is not None for case in cases) for kind in ("failure", "error", "skipped")}
    seconds = sum(item.seconds for item in record.configurations)
    attributes = {
        "name": _text(f"{record.selection.suite} on {record.host.name}"),
        "tests": str(len(cases)),
        "failures": str(counts["failure"]),
        "errors": str(counts["error"]),
        "skipped": str(counts["skipped"]),
        "time": f"{seconds:.3f}",
        "timestamp": f"{record.started:%Y-%m-%dT%H:%M:%S}",
        "hostname": _text(record.host.name),
    }
    suite.attrib |= attributes
    root.attrib |= {name: attributes[name] for name in ("tests", "failures", "errors", "skipped", "time")}
    return root


def _case(suite: ElementTree.Element, item: ConfigurationRecord, record: RunRecord) -> ElementTree.Element:
    group = f"fmha.{record.selection.suite}.{item.parameters.family.replace(' ', '')}"
    case = ElementTree.SubElement(
        suite, "testcase", name=_text(item.id), classname=_text(group), time=f"{item.seconds:.3f}"
    )
    details = "\n".join([*item.reasons, *_causes(item)])
    if item.status in RED or item.status is Status.INFRA_ERROR:
        kind = "error" if item.status in _ERRORS else "failure"
        first = item.reasons[0].splitlines()[0] if item.reasons and item.reasons[0] else str(item.status)
        ElementTree.SubElement(case, kind, type=item.status, message=_text(first)).text = _text(details)
    elif item.status is Status.NOT_RUN:
        ElementTree.SubElement(case, "skipped", message=_text(details))
    if item.metrics:
        numbers = " ".join(f"{name}={value}" for name, value in asdict(item.metrics).items())
        ElementTree.SubElement(case, "system-out").text = _text(numbers)
    return case


def _causes(item: ConfigurationRecord) -> Iterator[str]:
    """A line a cause: one missing fence has hundreds of findings."""
    causes: dict[Cause, list[FindingRecord]] = {}
    for finding in item.findings:
        causes.setdefault(cause_of(finding), []).append(finding)
    for found in causes.values():
        first = found[0]
        place = f" ({first.where['source']})" if "source" in first.where else ""
        more = f"; {len(found)} findings of this cause" if len(found) > 1 else ""
        yield f"{first.severity} {first.rule}: {first.message}{place}{more}"


def _pooled(suite: ElementTree.Element, figure: Pooled) -> ElementTree.Element:
    case = ElementTree.SubElement(
        suite, "testcase", name=_text(figure.group), classname=f"fmha.run.{figure.name}", time="0"
    )
    ElementTree.SubElement(case, "failure", type="bias", message=_text(figure.text)).text = _text(figure.text)
    return case


def _regression(suite: ElementTree.Element, item: Regression) -> ElementTree.Element:
    name = f"{item.subject} {item.what}"
    case = ElementTree.SubElement(suite, "testcase", name=_text(name), classname=f"fmha.regress.{item.kind}", time="0")
    ElementTree.SubElement(case, "failure", type=item.kind, message=_text(item.text)).text = _text(str(item))
    return case


def _text(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
