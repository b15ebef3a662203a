"""The same findings for other programs and other pages: Markdown, LaTeX, and the trials as a table."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.base.text import safe_text
from tare.records.model import Record
from tare.report.figure import Cell
from tare.report.naming import level_names

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
    return " & ".join(_raised(cell) for cell in cells) + r" \\"


def _raised(cell: str) -> str:
    """A cell, with its letters set high and a true minus before its numbers."""
    text, _, letters = cell.partition(_MARK)
    set_high = rf"\textsuperscript{{{_safe(letters.removesuffix(_MARK))}}}" if letters else ""
    return re.sub(r"(?<![\w.])-(?=\d)", "$-$", _safe(text)) + set_high


def _safe(text: str) -> str:
    return "".join(_SIGNS.get(sign, sign) for sign in safe_text(text).replace("\n", " "))


_SPECIAL = re.compile(r"([\\`*_{}\[\]#!|<>~])")


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """One line a row."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join("| " + " | ".join(line if line == "---" else safe(line) for line in row) + " |" for row in lines)


def safe(text: str) -> str:
    """Whatever a label holds stays text, in one line."""
    return _SPECIAL.sub(r"\\\1", safe_text(text))


def _coverage(page: Page) -> str:
    """The level of the intervals, where they have one in common: `97.5 % interval`."""
    return page.coverage if "%" in page.coverage else ""


def as_markdown(page: Page) -> str:
    """The first screen, then what each figure says with its numbers, then where it all comes from."""
    blocks = [
        f"# {safe(page.title)}",
        *([safe(page.question)] if page.title != page.question else []),
        f"{safe(page.counts)}. {safe(_coverage(page))}".strip(),
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
    blocks += [table(headers, verdicts)] if verdicts else []
    blocks += _section("Left out", [cell.text for cell in page.left_out])
    blocks += _section("To know", page.notes)
    if page.others:
        blocks += ["## Other metrics (not tested)", _cells(page.other_headers, page.others)]
    if page.devices is not None:
        blocks += _section("Devices", page.devices.sentences)
        for sheet in page.devices.sheets:
            blocks += [f"### {safe(sheet.title)}", _cells(sheet.headers, sheet.rows)]
    for figure in page.figures:
        blocks += [f"## {safe(figure.title)}", safe(figure.reading), _cells(figure.headers, figure.rows)]
    blocks += _section("Methods", page.methods)
    blocks += ["## Device", table(("fact", "value"), page.device)] if page.device else []
    blocks += [f"Made by tare, {safe(page.generated_utc)}."]
    return "\n\n".join(blocks) + "\n"


def _section(title: str, sentences: Sequence[str]) -> list[str]:
    return [f"## {title}", "\n".join(f"- {safe(sentence)}" for sentence in sentences)] if sentences else []


def _cells(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    return table(headers, [[cell.text for cell in row] for row in rows])


_FIRST = ("trial", "attempt", "study", "block", "position", "twin", "state", "reasons", "started_utc", "traced")
# Of a study, for whoever judges its trials.
DESIGN = ("study", "platform", "workload", "control", "repeat", "design", "compare")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would run what begins so (faults.md S22)


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
    return f"'{text}" if text.startswith(_FORMULA) else text


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
