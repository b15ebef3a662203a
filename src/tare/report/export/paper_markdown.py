"""A paper's table, claims and layers as Markdown, for a page that `tare verify` keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tare.analysis.papers.layers import Layers, layers
from tare.analysis.papers.model import Row
from tare.analysis.papers.rows import NOT_HERE, Answered
from tare.report.claims import answer_place
from tare.report.export.markdown_text import safe, table
from tare.report.paper import (
    COULD_SEE,
    LAYER_HEADS,
    NO_MACHINE,
    WHOLE_HEADS,
    layer_rows,
    layers_sentence,
    layers_title,
    whole_notes,
    whole_rows,
    whole_title,
)
from tare.report.paper_claims import by_claim, claim_notes, evidence, summary_texts, words_text
from tare.report.paper_groups import NOT_MEASURED, by_reason, measured_rows, table_notes
from tare.report.paper_notes import Notes
from tare.report.paper_words import device_text, ours_text, printed_text, row_text, software_text


def paper_markdown(found: Answered, parts: Sequence[str]) -> str:
    """The parts that were asked for; the page around them has the headings."""
    return "\n\n".join(block for part in parts for block in _PARTS[part](found))


def _rows(found: Answered) -> list[str]:
    """The rows that any machine has measured as a table, and the others by the reason."""
    notes = table_notes(found)
    names = [machine.name for machine in found.machines]
    heads = ("", "section", "quantity", f"{found.paper.paper} printed", *names)
    rows = [_row(found, row, names, notes) for row in measured_rows(found)]
    blocks = [_machines(found), safe(found.paper.note.strip()), *([table(heads, rows)] if rows else [])]
    blocks += _note_blocks(notes)
    groups = by_reason(found, notes)
    return [*blocks, NOT_MEASURED, "\n".join(_group(*each, notes) for each in groups.items())] if groups else blocks


def _row(found: Answered, row: Row, names: Sequence[str], notes: Notes) -> tuple[str, ...]:
    ours = [ours_text(found.rows[row.id][name], notes, row.paper.change or "") for name in names]
    return row.id, row.section, row.quantity, printed_text(row, notes), *ours


def _group(why: str, rows: Sequence[Row], notes: Notes) -> str:
    """A reason, and below it a line a row: `**0.5** median power (bare 43.7 W, container 40.8 W) (p)`."""
    return "\n".join([f"- {safe(why)}:", *(f"  - **{row.id}** {safe(row_text(row, notes))}" for row in rows)])


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
    return [summary, table(("claim", "section", *names), rows), *_note_blocks(notes), *_evidence(found, notes)]


def _evidence(found: Answered, notes: Notes) -> list[str]:
    """Below each claim that was measured, a line a machine."""
    lines: list[str] = []
    for statement, told in evidence(found, notes).items():
        lines += [f"- {safe(statement)}:", *(f"  - *{safe(machine)}* {safe(said)}" for machine, said in told)]
    return ["What the words rest on:", "\n".join(lines)] if lines else []


def _layers(found: Answered) -> list[str]:
    blocks = [block for each in layers(found) for block in _layers_of(each)]
    return blocks or [safe(NO_MACHINE)]


def _layers_of(each: Layers) -> list[str]:
    """One machine: the container in whole, then layer by layer."""
    notes = whole_notes(each)
    blocks = [f"### {safe(each.machine)}", _title(whole_title(each)), table(WHOLE_HEADS, whole_rows(each, notes))]
    blocks += [safe(COULD_SEE), *_note_blocks(notes)]
    if each.apart is None:
        return [*blocks, safe(f"Layer by layer: {NOT_HERE}: {each.why}.")]
    return [*blocks, _title(layers_title(each)), table(LAYER_HEADS, layer_rows(each)), safe(layers_sentence(each))]


def _title(words: str) -> str:
    return safe(f"{words[0].upper()}{words[1:]}:")


_PARTS: Mapping[str, Callable[[Answered], list[str]]] = {"rows": _rows, "claims": _claims, "layers": _layers}
