"""A gate's answer for the machines around it: JUnit for a CI server's list of tests, Markdown for a comment."""

from __future__ import annotations

from xml.etree import ElementTree

from tare.analysis.judging.gate import Gate
from tare.analysis.model import Comparison, Weighing
from tare.analysis.sentences import weighing_json
from tare.base.text import safe_text
from tare.report.export import safe, table
from tare.report.text.verdict import verdict_text


def as_junit(weighing: Weighing, gate: Gate | None) -> bytes:
    """One test case a level: failed where the gate has a reason against it, skipped where nothing can be told."""
    comparisons = [*weighing.comparisons, *weighing.tested]
    reasons: dict[str, list[str]] = {}
    for ruling in gate.reasons if gate is not None else ():
        reasons.setdefault(str(ruling.subject), []).append(str(ruling))
    suite = ElementTree.Element("testsuite", name=f"tare {safe_text(weighing.study)}", tests=str(len(comparisons)))
    sentences = _sentences(weighing)
    for each, sentence in zip(comparisons, sentences, strict=True):
        case = ElementTree.SubElement(
            suite, "testcase", classname=safe_text(each.metric), name=safe_text(f"{each.level} against {each.against}")
        )
        if each in weighing.comparisons and (against := reasons.get(each.level)):
            ElementTree.SubElement(case, "failure", message=safe_text(" ".join(against)))
        elif each.verdict == "cannot_tell":
            ElementTree.SubElement(case, "skipped", message=safe_text(sentence))
        ElementTree.SubElement(case, "system-out").text = safe_text(sentence)
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    ElementTree.SubElement(suite, "system-out").text = safe_text(verdict_text(weighing, 100)).replace("\\n", "\n")
    ElementTree.indent(suite)
    made: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return made + b"\n"


def as_comment(weighing: Weighing, gate: Gate | None) -> str:
    """A few lines for a pull request: passed or not, each level's effect, and the reasons."""
    head = "" if gate is None else ("**passed**: " if gate.passed else "**failed**: ")
    rows = [
        (each.level, each.metric, _effect(each), each.verdict.replace("_", " "))
        for each in (*weighing.comparisons, *weighing.tested)
    ]
    blocks = [f"{head}{safe(weighing.question)}", table(("level", "metric", "effect", "verdict"), rows)]
    if gate is not None:
        blocks += ["\n".join(f"- {safe(str(each))}" for each in (*gate.reasons, *gate.remarks))]
    blocks += ["\n".join(f"- {safe(sentence)}" for sentence in _sentences(weighing))]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _effect(found: Comparison) -> str:
    if found.effect is None:
        return "none"
    bounds = "" if found.low is None or found.high is None else f" [{found.low:+.1%}, {found.high:+.1%}]"
    return f"{found.effect:+.1%}{bounds}"


def _sentences(weighing: Weighing) -> list[str]:
    told = weighing_json(weighing)
    return [str(each["sentence"]) for each in (*told["comparisons"], *told["tested"])]
