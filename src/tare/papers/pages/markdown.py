"""A paper's table, claims and layers as Markdown, for a page that `tare store verify` keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tare.ext.report import markdown_table as table
from tare.ext.report import markdown_text as safe
from tare.papers.pages.claims import answer_place
from tare.papers.pages.rows import (
    NOWHERE_MEASURED,
    Notes,
    by_reason,
    device_text,
    measured_rows,
    measuring,
    not_measuring_text,
    ours_text,
    printed_text,
    row_text,
    software_text,
    table_notes,
)
from tare.papers.pages.terminal import (
    COULD_SEE,
    LAYER_HEADS,
    NO_MACHINE,
    WHOLE_HEADS,
    by_claim,
    claim_notes,
    evidence,
    layer_rows,
    layers_sentence,
    layers_title,
    mark_rows,
    marks_sentence,
    summary_texts,
    whole_notes,
    whole_rows,
    whole_title,
    words_text,
)
from tare.papers.tables.model import Row
from tare.papers.tables.rows import NOT_HERE, Answered, layers


def paper_markdown(found: Answered, parts: Sequence[str]) -> str:
    """The parts that were asked for; the page around them has the headings."""
    return "\n\n".join(block for part in parts for block in _PARTS[part](found))


def _rows(found: Answered) -> list[str]:
    """The rows that any machine has measured as a table, and the others by the reason."""
    notes = table_notes(found)
    names = measuring(found)
    heads = ("", "section", "quantity", f"{found.paper.paper} printed", *names)
    rows = [_row(found, row, names, notes) for row in measured_rows(found)]
    told = [found.paper.note.strip(), not_measuring_text(found)]
    blocks = [_machines(found), *(safe(each) for each in told if each), *([table(heads, rows)] if rows else [])]
    blocks += _note_blocks(notes)
    groups: list[str] = []
    for why, unmeasured in by_reason(found, notes).items():
        # `**0.5** median power (bare 43.7 W, container 40.8 W) (p)`
        groups += [f"- {safe(why)}:", *(f"  - **{row.id}** {safe(row_text(row, notes))}" for row in unmeasured)]
    return [*blocks, NOWHERE_MEASURED, "\n".join(groups)] if groups else blocks


def _row(found: Answered, row: Row, names: Sequence[str], notes: Notes) -> tuple[str, ...]:
    ours = [ours_text(found.rows[row.id][name], notes, row.paper.change or "") for name in names]
    return row.id, row.section, row.quantity, printed_text(row, notes), *ours


def _note_blocks(notes: Notes) -> list[str]:
    """What the letters stand for, list after list."""
    blocks: list[str] = []
    for heading, texts in notes.lists().items():
        blocks += [heading, "\n".join(f"- {safe(said)}" for said in texts)]
    return blocks


def _machines(found: Answered) -> str:
    if not found.machines:
        return safe(NO_MACHINE)
    rows = [(each.name, device_text(each), software_text(each)) for each in found.machines]
    return table(("machine", "device", "software"), rows)


def _claims(found: Answered) -> list[str]:
    """How many hold on each machine, every claim in a word, and what the words rest on."""
    if not found.machines:
        return [safe(NO_MACHINE)]
    notes = claim_notes(found)
    names = [machine.name for machine in found.machines]
    rows = []
    for answers in by_claim(found).values():
        first = answers[0][1]
        words = [words_text([answer for machine, answer in answers if machine == name], notes) for name in names]
        rows.append((first.statement, answer_place(first), *words))
    summary = "\n".join(f"- {safe(said)}" for said in summary_texts(found))
    lines: list[str] = []  # below each claim that was measured, a line a machine
    for statement, told in evidence(found, notes).items():
        lines += [f"- {safe(statement)}:", *(f"  - *{safe(machine)}* {safe(said)}" for machine, said in told)]
    rests_on = ["What the words rest on:", "\n".join(lines)] if lines else []
    return [summary, table(("claim", "section", *names), rows), *_note_blocks(notes), *rests_on]


def _layers(found: Answered) -> list[str]:
    """Machine by machine, the container in whole, then layer by layer."""
    blocks: list[str] = []
    for each in layers(found):
        notes = whole_notes(each)
        blocks += [f"### {safe(each.machine)}", _title(whole_title(each)), table(WHOLE_HEADS, whole_rows(each, notes))]
        blocks += [safe(COULD_SEE), *_note_blocks(notes)]
        if each.apart is None:
            blocks.append(safe(f"Layer by layer: {NOT_HERE}: {each.why}."))
        else:
            blocks += [_title(layers_title(each)), table(LAYER_HEADS, layer_rows(each)), safe(layers_sentence(each))]
    return blocks or [safe(NO_MACHINE)]


def _title(words: str) -> str:
    return safe(f"{words[0].upper()}{words[1:]}:")


def _marks(found: Answered) -> list[str]:
    heads = ("row", "quantity", *(machine.name for machine in found.machines))
    return [safe(marks_sentence(found)), table(heads, mark_rows(found))]


_PARTS: Mapping[str, Callable[[Answered], list[str]]] = {
    "rows": _rows,
    "claims": _claims,
    "layers": _layers,
    "marks": _marks,
}
