"""A paper's table, claims and layers as Markdown, for a page that `tare verify` keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tare.analysis.claims.model import Answer
from tare.analysis.papers.layers import layers
from tare.analysis.papers.rows import NOT_HERE, WORDS, Answered
from tare.report.claims import answer_place
from tare.report.export.markdown_text import safe, table
from tare.report.paper import (
    CONDITIONS,
    LAYER_HEADS,
    WHOLE_HEADS,
    by_claim,
    claim_text,
    layer_rows,
    layers_sentence,
    whole_rows,
)
from tare.report.paper_words import device_text, marks_of, marks_texts, ours_text, printed_text, software_text


def paper_markdown(found: Answered, parts: Sequence[str]) -> str:
    """The parts that were asked for; the page around them has the headings."""
    return "\n\n".join(block for part in parts for block in _PARTS[part](found))


def _rows(found: Answered) -> list[str]:
    marks = marks_of(found)
    names = [machine.name for machine in found.machines]
    heads = ("", "section", "quantity", f"{found.paper.paper} printed", *names)
    rows = []
    for row in found.paper.rows:
        ours = [ours_text(found.rows[row.id][name], marks) for name in names]
        rows.append((row.id, row.section, row.quantity, printed_text(row), *ours))
    blocks = [_machines(found), safe(found.paper.note.strip()), table(heads, rows)]
    if marks:
        blocks += [CONDITIONS, "\n".join(f"- {safe(said)}" for said in marks_texts(marks))]
    return blocks


def _machines(found: Answered) -> str:
    rows = [(each.name, device_text(each), software_text(each)) for each in found.machines]
    return table(("machine", "device", "software"), rows)


def _claims(found: Answered) -> list[str]:
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
        blocks += [f"### {safe(each.machine)}", table(WHOLE_HEADS, whole_rows(each))]
        if each.apart is None:
            blocks += [safe(f"Layer by layer: {NOT_HERE}: {each.why}.")]
        else:
            blocks += [table(LAYER_HEADS, layer_rows(each)), safe(layers_sentence(each))]
    return blocks


_PARTS: Mapping[str, Callable[[Answered], list[str]]] = {"rows": _rows, "claims": _claims, "layers": _layers}
