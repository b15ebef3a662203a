"""A gate's answer for the machines around it: JUnit for a CI server's list of tests, Markdown for a comment."""

from __future__ import annotations

from dataclasses import dataclass
from xml.etree import ElementTree

from tare.analysis.cells import KEPT_BACK
from tare.analysis.model import Comparison, Weighing
from tare.analysis.selection import START_UP
from tare.analysis.sentences import weighing_json
from tare.base.errors import StudyError
from tare.base.rulings import Ruling
from tare.base.text import safe_text
from tare.report.export import safe, table
from tare.report.text.verdict import verdict_text

# Whether a weighing passes a limit (`--fail-over`): the reasons why it does not, as codes.


@dataclass(frozen=True)
class Gate:
    """Passed where there are no reasons against; `remarks` are worth knowing, and count for nothing."""

    limit: float | None
    start_up: float | None = None  # the limit of the start-up
    reasons: tuple[Ruling, ...] = ()
    remarks: tuple[Ruling, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.reasons


def gate(weighing: Weighing, limit: float | None, start_up: float | None = None) -> Gate:
    """Every level on the headline and, of inference, on its tail; on the start-up where it has a limit of its own."""
    steady = [*weighing.comparisons, *(each for each in weighing.tested if each.metric != START_UP)]
    starts = [each for each in weighing.tested if each.metric == START_UP]
    if start_up is not None and not starts:
        raise StudyError(
            "--fail-over-start-up: no start-up was tested here; it needs trials whose first step is known, and is not "
            f"tested where a metric is named (then: --metric {START_UP} --fail-over LIMIT)."
        )
    gated = [(each, limit) for each in steady if limit is not None]
    gated += [(each, start_up) for each in starts if start_up is not None]
    for each, _ in gated:
        if not each.direction.settled:
            raise StudyError(
                f"--fail-over needs to know whether more of {each.metric!r} is better, and its name does not settle "
                "it: add --higher-is-better or --lower-is-better."
            )
    reasons = [reason for each, most in gated for reason in _against(each, most)]
    remarks = [remark for each, most in gated if (remark := _unsure(each, most)) is not None]
    return Gate(limit, start_up, tuple(reasons), tuple(remarks))


def _against(found: Comparison, limit: float) -> list[Ruling]:
    if found.harm is None:
        why = next((str(note) for note in found.notes if note.code == "compare.unlike-work"), None)
        missing = found.level if found.ours is None else found.against
        sentence = why or f"there is no usable trial of {missing}, so nothing is known of {found.level}."
        return [Ruling("gate.no-trial", "failed", found.level, sentence)]
    made = [
        Ruling("gate.hidden", "failed", found.level, f"{found.level}: {each.sentence} ({each.code})")
        for each in found.withheld
    ]
    if found.harm > limit and (doubt := next((note for note in found.notes if note.code in KEPT_BACK), None)):
        sentence = f"{_worse(found, found.harm, limit)}; this data does not show whether that is so ({doubt.code})."
        made.append(Ruling("gate.doubtful", "failed", found.level, sentence))
    elif found.harm > limit and found.sure:
        made.append(Ruling("gate.over", "failed", found.level, f"{_worse(found, found.harm, limit)}."))
    return made


def _unsure(found: Comparison, limit: float) -> Ruling | None:
    """What to know of one that passes: an effect that is not counted, or an interval that reaches beyond the limit."""
    if found.harm is None or found.withheld or (found.sure and found.harm > limit):
        return None
    if doubt := next((note for note in found.notes if note.code in KEPT_BACK), None):
        if found.harm > limit:
            return None
        sentence = f"{found.level} passes, and is not shown to be within {limit:.1%} ({doubt.code})."
        return Ruling("gate.not-shown", "note", found.level, sentence)
    if found.harm <= limit:
        most = None if found.low is None else -(found.low or 0.0) if found.direction.rises else found.high
        if most is not None and most <= limit:
            return None
        reach = "there are too few trials for an interval" if most is None else f"its interval reaches {most:+.1%}"
        sentence = f"{found.level} passes, and is not shown to be within {limit:.1%}: {reach}."
        return Ruling("gate.not-shown", "note", found.level, sentence)
    sentence = f"{_worse(found, found.harm, limit)}, but that may be noise and is not counted."
    return Ruling("gate.over", "note", found.level, sentence)


def _worse(found: Comparison, harm: float, limit: float) -> str:
    how = "less" if found.direction.rises else "more"
    figure = f"{found.called} {harm:.1%} {how}"
    return f"{found.level} is worse than {found.against}: {figure}, over {limit:.1%}"


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
