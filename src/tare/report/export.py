"""The same findings for other programs and other pages: Markdown, LaTeX, the trials as a table; and a gate's answer, as
JUnit for a CI server's list of tests and as Markdown for a comment.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from tare.analysis.answer import answer
from tare.analysis.cells import KEPT_BACK
from tare.analysis.model import Comparison, Weighing
from tare.analysis.selection import START_UP
from tare.analysis.sentences import answer_sentence, contrast_sentence, figures_of, verdict_phrase
from tare.analysis.tables.table import FORMULA
from tare.base.errors import StudyError
from tare.base.rulings import Ruling
from tare.base.text import safe_text
from tare.records.model import Record
from tare.report.figure import Cell
from tare.report.layout import level_names
from tare.report.sections import markdown_safe as safe
from tare.report.sections import markdown_table, section_markdown
from tare.report.text.verdict import judged_instead, verdict_text

if TYPE_CHECKING:
    from tare.report.html import Page

_SIGNS = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "µ": r"\textmu{}", "±": r"$\pm$", "\N{MINUS SIGN}": r"$-$", "\N{RIGHTWARDS ARROW}": r"$\to$", "|": r"\textbar{}",
}  # fmt: skip


def as_latex(page: Page, columns: int = 1) -> str:
    """One table environment, in one column or across two; what was measured, and how sure it is, is its caption."""
    named = level_names([row.level for row in page.verdicts], page.weighing.by)
    around = "table*" if columns == 2 else "table"
    doubts: dict[str, str] = {}  # what stands behind a verdict in brackets -> its letter below the table
    rows = [
        (named[row.level], row.median, row.effect, row.interval, _lettered(row.phrase, doubts), row.n)
        for row in page.verdicts
    ]
    caption = " ".join(filter(None, [f"{page.question}: {page.metric}.", f"{page.counts}.", _coverage(page)]))
    small = [] if columns == 2 else [r"  \footnotesize", r"  \setlength{\tabcolsep}{3pt}"]
    below = "; ".join(rf"\textsuperscript{{{letter}}}{_safe(doubt)}" for doubt, letter in doubts.items())
    lines = [
        r"% needs \usepackage{booktabs}",
        rf"\begin{{{around}}}",
        rf"  \caption{{{_safe(caption)}}}",
        *small,
        r"  \begin{tabular}{lrrrlr}",
        r"    \toprule",
        "    " + _line(("level", "median", "effect", "interval", "verdict", "n")),
        r"    \midrule",
        *("    " + _line(row) for row in rows),
        r"    \bottomrule",
        r"  \end{tabular}",
        *([rf"  \par\smallskip {below}"] if below else []),
        *(f"  % {_safe(sentence)}" for sentence in (*page.taints, *(cell.text for cell in page.left_out))),
        rf"\end{{{around}}}",
    ]
    return "\n".join(lines) + "\n"


def _lettered(phrase: str, doubts: dict[str, str]) -> str:
    """A verdict with letters for its doubts, which would make the column wider than a page."""
    word, _, behind = phrase.removesuffix(")").partition(" (")
    told = [each for each in behind.split("; ") if each] if phrase.endswith(")") else []
    letters = [doubts.setdefault(each, chr(ord("a") + len(doubts) % 26)) for each in told]
    return f"{word}{_MARK}{','.join(letters)}{_MARK}" if letters else phrase


_MARK = "\0"  # around what is set high; no text that is shown holds it


def _line(cells: Sequence[str]) -> str:
    """A row, with the letters of a cell set high and a true minus before its numbers."""
    made = []
    for cell in cells:
        text, _, letters = cell.partition(_MARK)
        set_high = rf"\textsuperscript{{{_safe(letters.removesuffix(_MARK))}}}" if letters else ""
        made.append(re.sub(r"(?<![\w.])-(?=\d)", "$-$", _safe(text)) + set_high)
    return " & ".join(made) + r" \\"


def _safe(text: str) -> str:
    return "".join(_SIGNS.get(sign, sign) for sign in safe_text(text).replace("\n", " "))


_CALLING = re.compile(r"@|:(?=//)|www(?=\.)", re.IGNORECASE)  # makes a mention or a link on a forge


def _coverage(page: Page) -> str:
    """The level of the intervals, where they have one in common: `97.5 % interval`."""
    return page.coverage if "%" in page.coverage else ""


def as_markdown(page: Page) -> str:
    """The first screen, then what each figure says with its numbers, then where it all comes from."""
    blocks = [
        f"# {safe(page.headline.title)}",
        safe(page.question),
        safe(page.headline.sentence),
        f"{safe(page.provenance)} {safe(_coverage(page))}".strip(),
    ]
    blocks += [
        f"**{safe(a.level.removesuffix(':'))}: {safe(a.phrase)}**{safe(f' ({a.doubts})' if a.doubts else '')}. "
        f"{safe(a.sentence)}"
        for a in page.answers
    ]
    blocks += [safe(line) for answer in page.answers for line in (*answer.further, *filter(None, [answer.costs]))]
    blocks += _section("Does it cost more in one cell than in another?", page.interactions)
    blocks += _section("What taints this", page.taints)
    headers = ("level", "median", "effect", "interval", "verdict", "n")
    verdicts = [(row.level, row.median, row.effect, row.interval, row.phrase, row.n) for row in page.verdicts]
    blocks += [markdown_table(headers, verdicts)] if verdicts else []
    blocks += _section("Left out", [cell.text for cell in page.left_out])
    blocks += _section("To know", page.notes)
    if page.others:
        blocks += ["## Other metrics (not tested)", _cells(page.other_headers, page.others)]
    if page.devices:
        blocks += ["## Devices", *(block for section in page.devices for block in section_markdown(section))]
    blocks += [block for section in page.sections for block in section_markdown(section)]
    for figure in page.figures:
        blocks += [
            f"## {safe(figure.title)}",
            safe(figure.reading),
            _cells(figure.headers, figure.rows),
        ]
    blocks += _section("Methods", page.methods)
    blocks += ["## Device", markdown_table(("fact", "value"), page.device)] if page.device else []
    blocks += [f"Made by tare, {safe(page.generated_utc)}."]
    return "\n\n".join(blocks) + "\n"


def _section(title: str, sentences: Sequence[str]) -> list[str]:
    return [f"## {title}", "\n".join(f"- {safe(sentence)}" for sentence in sentences)] if sentences else []


def _cells(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    return markdown_table(headers, [[cell.text for cell in row] for row in rows])


_FIRST = ("trial", "attempt", "study", "block", "position", "twin", "state", "reasons", "started_utc", "traced")
# Of a study, for whoever judges its trials.
DESIGN = ("study", "platform", "workload", "control", "repeat", "design", "compare")


def trial_rows(
    records: Sequence[Record], study: Mapping[str, Any] | None = None
) -> tuple[list[str], list[dict[str, Any]]]:
    """Names of the columns in order, and the rows; a setting, metric or phase that a trial lacks is absent.

    The first row says how the study is judged, so that `tare compare` of the table gives the same verdict.
    """
    rows = [_row(record) for record in records]
    if rows and study is not None:
        rows[0]["design"] = {key: study[key] for key in DESIGN if key in study}
    found = dict.fromkeys(name for row in rows for name in row)
    return [*_FIRST, *(name for name in found if name not in _FIRST)], rows


def _row(record: Record) -> dict[str, Any]:
    return {
        "trial": record.trial, "attempt": record.attempt, "study": record.study, "block": record.block,
        "position": record.position, "twin": record.twin, "state": record.state,
        "reasons": " ".join(map(str, record.reasons)), "started_utc": record.started_utc, "traced": record.traced,
        **{f"setting.{name}": value for name, value in record.settings.items() if value is not None},
        **{f"metric.{name}": value for name, value in record.metrics.items()},
        **{f"phase.{name}_s": value for name, value in record.phases.items()},
    }  # fmt: skip


def as_csv(records: Sequence[Record], study: Mapping[str, Any] | None = None) -> str:
    """Numbers as they are; a text that a spreadsheet would run gets a quote before it."""
    names, rows = trial_rows(records, study)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_cell(name) for name in names])
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value if isinstance(value, int) else float(value))  # numpy's write their own name
    text = _text(value)
    return f"'{text}" if text.startswith(FORMULA) else text


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, list | tuple | Mapping) else safe_text(value)


def write_parquet(records: Sequence[Record], path: Path, study: Mapping[str, Any] | None = None) -> None:
    """Each column has one type: numbers where every value is one, else text."""
    from tare.records.parquet import engine, insert, write_table

    names, rows = trial_rows(records, study)
    with engine(path.parent / f".{path.name}.spill") as db:
        insert(db, "trials", {name: _column(rows, name) for name in names}, new=True)
        write_table(db, "trials", path)


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> Any:
    import numpy as np

    values = [row.get(name) for row in rows]
    present = [value for value in values if value is not None]
    if (
        present
        and all(isinstance(value, int) and not isinstance(value, bool) for value in present)
        and None not in values
    ):
        return np.array(values, dtype=np.int64)
    if present and all(isinstance(value, int | float) and not isinstance(value, bool) for value in present):
        masked = [float("nan") if value is None else float(value) for value in values]
        return np.ma.masked_invalid(np.array(masked))
    return [None if value is None else _text(value) for value in values]


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
    for each in comparisons:
        sentence = answer_sentence(each)
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
    whole = safe_text(verdict_text(weighing, 100, verbose=True)).replace("\\n", "\n")
    ElementTree.SubElement(suite, "system-out").text = whole
    ElementTree.indent(suite)
    made: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return made + b"\n"


def as_comment(weighing: Weighing, gate: Gate | None) -> str:
    """A few lines for a pull request: passed or not, the answer and its rows as on the terminal, and the reasons."""
    head = "" if gate is None else ("**passed**: " if gate.passed else "**failed**: ")
    judged = (*weighing.comparisons, *weighing.tested)
    rows = [(each.level, each.called, figures_of(each) or "none", verdict_phrase(each)) for each in judged]
    said = answer(weighing) or weighing.question
    blocks = [f"{head}{safe(said)}", markdown_table(("level", "metric", "effect", "verdict"), rows)]
    if gate is not None:
        blocks += ["\n".join(f"- {safe(str(each))}" for each in (*gate.reasons, *gate.remarks))]
    rest = [sentence for sentence in map(contrast_sentence, judged) if sentence.removesuffix(".") not in said]
    blocks += ["\n".join(f"- {safe(sentence)}" for sentence in (*judged_instead(weighing), *rest))]
    return _CALLING.sub("\\g<0>\u200b", "\n\n".join(block for block in blocks if block)) + "\n"
