"""Comparison reports for continuous integration: JUnit XML, GitHub annotations, Markdown."""

import re
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from xml.etree import ElementTree

from pockengine.farm.results.regression import Change, Comparison, worse
from pockengine.farm.results.results import now

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
SIGNS = {
    Change.WORSE: "🔴",
    Change.BETTER: "🟢",
    Change.MISSING: "🟠",
    Change.INVALID: "🟠",
    Change.UNSURE: "🟡",
}
NO_VERDICT = (Change.NEW, Change.UNSURE)


def junit(comparisons: Sequence[Comparison], baseline: str) -> str:
    """Return a JUnit file: a test for each figure, which fails where it must stop a change."""
    failures = worse(comparisons)
    seconds = _seconds(comparisons)
    suite = ElementTree.Element(
        "testsuite",
        timestamp=min((one.record.time for one in comparisons), default=now()),
        time=f"{sum(seconds.values()):.3f}",
        name=_xml(f"farm bench against {baseline}"),
        tests=str(len(comparisons)),
        failures=str(len(failures)),
        errors="0",
        skipped=str(sum(one.change in NO_VERDICT for one in comparisons)),
    )
    for one in comparisons:
        record = one.record
        place = _xml(f"{record.device}.{record.model}.{record.scheme}")
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=place,
            name=_xml(record.metric),
            time=f"{seconds.get(record.time, 0.0):.3f}",
        )
        seconds[record.time] = 0.0  # of figures that were stored at once the first has the time
        if one in failures:
            failure = ElementTree.SubElement(case, "failure", message=_xml(_line(one)))
            failure.text = _xml(f"{one.name}: {_line(one)}")
        elif one.change in NO_VERDICT:
            ElementTree.SubElement(case, "skipped", message=_xml(one.why))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _seconds(comparisons: Sequence[Comparison]) -> dict[str, float]:
    """Return the seconds between each record and the one before, by the record's time.

    Figures that this run did not measure, and the first, have zero.
    """
    measured = [one.record.time for one in comparisons if one.change is not Change.MISSING]
    times = sorted({text: datetime.fromisoformat(text) for text in measured}.items())
    gaps = pairwise(times)
    return {text: (later - before).total_seconds() for (_, before), (text, later) in gaps}


def annotations(comparisons: Sequence[Comparison]) -> list[str]:
    """Return annotations for GitHub Actions: errors and improvements."""
    failures = worse(comparisons)
    lines = []
    for one in comparisons:
        if one in failures or one.change is Change.BETTER:
            word = "error" if one in failures else "notice"
            title = _property(f"{one.record.metric} {one.change.value}")
            lines.append(f"::{word} title={title}::{_command(f'{one.name}: {_line(one)}')}")
    return lines


def markdown(comparisons: Sequence[Comparison], baseline: str) -> str:
    """Return a summary: a table of the changes, and the number of unchanged figures."""
    changed = [one for one in comparisons if one.change is not Change.SAME]
    same = len(comparisons) - len(changed)
    bad = len(worse(comparisons))
    verdict = f"{bad} figures stop this change" if bad else "nothing got worse"
    lines = [f"### Against {_cell(baseline)}: {verdict}", ""]
    if changed:
        lines += ["| | figure | before | now | |", "| --- | --- | ---: | ---: | --- |"]
    for one in changed:
        cells = (SIGNS.get(one.change, ""), one.name, one.before, one.now, one.why)
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return "\n".join([*lines, "", f"{same} figures are the same.", ""])


def _line(one: Comparison) -> str:
    return f"{one.change.value}: {one.before} before, {one.now} now; {one.why}"


def _xml(text: str) -> str:
    """Remove characters that XML forbids."""
    return NOT_XML.sub("?", text)


def _command(text: str) -> str:
    """Escape the text of a workflow command for GitHub."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _command(text).replace(":", "%3A").replace(",", "%2C")


def _cell(text: str) -> str:
    """Keep text inside its cell, and plain."""
    plain = re.sub(r"\s+", " ", text).replace("\\", "\\\\")
    return re.sub(r"([|`*_<>\[\]])", r"\\\1", plain)
