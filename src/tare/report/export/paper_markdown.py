"""A paper's table, claims and layers as Markdown, for a page that `tare verify` keeps."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from tare.analysis.claims.model import Answer
from tare.analysis.papers.layers import layers
from tare.analysis.papers.model import Row
from tare.analysis.papers.rows import NOT_HERE, WORDS, Answered
from tare.report.claims import answer_place
from tare.report.export.markdown_text import safe, table
from tare.report.paper import (
    CONDITIONS,
    COULD_SEE,
    LAYER_HEADS,
    NO_MACHINE,
    WHOLE_HEADS,
    by_claim,
    claim_text,
    layer_rows,
    layers_sentence,
    layers_title,
    whole_rows,
    whole_title,
)
from tare.report.paper_words import (
    device_text,
    marks_of,
    marks_texts,
    ours_text,
    plainly_printed,
    printed_text,
    reason_text,
    software_text,
)

_DETAILS = re.compile(r" \([a-z0-9_]+\)|\b\d[\d.]*(?= s\b)")  # the name of a figure, a number of seconds
NOT_MEASURED = "Rows that were measured on no machine, by the reason:"


def paper_markdown(found: Answered, parts: Sequence[str]) -> str:
    """The parts that were asked for; the page around them has the headings."""
    return "\n\n".join(block for part in parts for block in _PARTS[part](found))


def _rows(found: Answered) -> list[str]:
    """The rows that any machine has measured as a table, and the others by the reason."""
    marks = marks_of(found)
    names = [machine.name for machine in found.machines]
    heads = ("", "section", "quantity", f"{found.paper.paper} printed", *names)
    rows = []
    for row in (row for row in found.paper.rows if _is_measured(found, row) or not names):
        ours = [ours_text(found.rows[row.id][name], marks) for name in names]
        rows.append((row.id, row.section, row.quantity, printed_text(row), *ours))
    blocks = [_machines(found), safe(found.paper.note.strip()), *([table(heads, rows)] if rows else [])]
    if marks:
        blocks += [CONDITIONS, "\n".join(f"- {safe(said)}" for said in marks_texts(marks))]
    reasons = _by_reason(found) if names else {}
    if reasons:
        blocks += [NOT_MEASURED, "\n".join(f"- {safe(why)}: {_listed(rows)}" for why, rows in reasons.items())]
    return blocks


def _is_measured(found: Answered, row: Row) -> bool:
    return any(ours.word != NOT_HERE for ours in found.rows[row.id].values())


def _by_reason(found: Answered) -> dict[str, list[Row]]:
    """Reason -> the rows that no machine has measured; where only a name or seconds differ, as the first says."""
    told: dict[str, dict[str, list[Row]]] = {}
    for row in (row for row in found.paper.rows if not _is_measured(found, row)):
        whys = {name: reason_text(ours.why) for name, ours in found.rows[row.id].items()}
        several = len(set(whys.values())) > 1
        said = "; ".join(f"{name}: {why}" for name, why in whys.items()) if several else next(iter(whys.values()))
        told.setdefault(_DETAILS.sub("", said), {}).setdefault(said, []).append(row)
    return {_first_of(several): [row for rows in several.values() for row in rows] for several in told.values()}


def _first_of(several: Mapping[str, object]) -> str:
    return f"{next(iter(several))}{', or the like' if len(several) > 1 else ''}"


def _listed(rows: Sequence[Row]) -> str:
    """`**0.4** median GPU utilisation (bare 90 %, container 77 %; withdrawn by the authors)`, one after the other."""
    told = {row.id: "; ".join(part for part in (plainly_printed(row), row.hazard) if part) for row in rows}
    return "; ".join(f"**{row.id}** {safe(f'{row.quantity} ({told[row.id]})')}" for row in rows)


def _machines(found: Answered) -> str:
    if not found.machines:
        return safe(NO_MACHINE)
    rows = [(each.name, device_text(each), software_text(each)) for each in found.machines]
    return table(("machine", "device", "software"), rows)


def _claims(found: Answered) -> list[str]:
    if not found.machines:
        return [safe(NO_MACHINE)]
    names = [machine.name for machine in found.machines]
    told = by_claim(found)
    rows = []
    for answers in told.values():
        first = answers[0][1]
        words = [_words([answer for machine, answer in answers if machine == name]) for name in names]
        rows.append((first.statement, answer_place(first), *words))
    evidence = [
        f"- {safe(answer.statement)}: *{safe(machine)}* {safe(claim_text(answer))}"
        for answers in told.values()
        for machine, answer in answers
    ]
    return [table(("claim", "section", *names), rows), "\n".join(evidence)]


def _words(answers: Sequence[Answer]) -> str:
    """One word; where a machine has several populations, one of each."""
    return ", ".join(WORDS[answer.word] for answer in answers)


def _layers(found: Answered) -> list[str]:
    blocks: list[str] = []
    for each in layers(found):
        blocks += [f"### {safe(each.machine)}", _title(whole_title(each)), table(WHOLE_HEADS, whole_rows(each))]
        blocks += [safe(COULD_SEE)]
        if each.apart is None:
            blocks += [safe(f"Layer by layer: {NOT_HERE}: {each.why}.")]
        else:
            blocks += [_title(layers_title(each)), table(LAYER_HEADS, layer_rows(each)), safe(layers_sentence(each))]
    return blocks or [safe(NO_MACHINE)]


def _title(words: str) -> str:
    return safe(f"{words[0].upper()}{words[1:]}:")


_PARTS: Mapping[str, Callable[[Answered], list[str]]] = {"rows": _rows, "claims": _claims, "layers": _layers}
