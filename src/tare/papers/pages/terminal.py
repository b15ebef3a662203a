"""What `tare papers tables` shows in a terminal: the paper's table with one line a machine, its claims, its layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from tare.base.columns import wrap
from tare.base.text import count_text, metric_name, safe_text, share_text
from tare.ext.analysis import (
    Comparison,
    collected,
    effect_of,
    grouped,
    interval_of,
    noise_text,
    sensitivity_of,
    too_few_for_interval,
)
from tare.ext.report import layer_name, table
from tare.papers.claims.model import COUNTED, NOT_MEASURED, Answer, Word
from tare.papers.pages.claims import answer_place
from tare.papers.pages.rows import (
    NOWHERE_MEASURED,
    Note,
    Notes,
    by_reason,
    change_texts,
    known_change,
    machine_text,
    measured_rows,
    measuring,
    not_here,
    not_measuring_text,
    notes_of,
    ours_text,
    parted,
    printed_text,
    reason_notes,
    row_text,
    table_notes,
    where_notes,
    where_text,
)
from tare.papers.tables.rows import NOT_HERE, WORDS, Answered, Layers, Ours, layers

_INDENT = "  "
COULD_SEE = (
    "n is the number of blocks that hold both sides. MDE is the minimum detectable effect, the smallest that such a "
    "run sees with a chance of 80 %. Equivalent is within the margin in brackets."
)
NO_MACHINE = "No machine in these results has run any of this paper's studies."


def paper_text(found: Answered, parts: Sequence[str], width: int = 80) -> str:
    """The parts that were asked for, below what the paper asks and the machines that were asked."""
    lines = [*wrap(f"{found.paper.paper}: {found.paper.about}", width, indent=_INDENT)]
    lines += [*wrap(found.paper.note.strip(), width), ""]
    lines += [] if found.machines else wrap(NO_MACHINE, width)
    for machine in found.machines:
        lines += wrap(f"{safe_text(machine.name)}: {machine_text(machine)}", width, indent=_INDENT)
    for part in parts:
        lines += ["", *_PARTS[part](found, width)]
    return "\n".join(lines)


def _rows(found: Answered, width: int) -> list[str]:
    """The rows that any machine has measured, what their letters stand for, and the other rows by the reason."""
    notes = table_notes(found)
    names = measuring(found)
    room = max(map(len, [found.paper.paper, *names]))
    lines = [*wrap(safe_text(said), width), ""] if (said := not_measuring_text(found)) else []
    for row in measured_rows(found):
        lines += wrap(f"{row.id}  {row.quantity} ({row.section})", width, indent=_INDENT)
        lines += _line(found.paper.paper, printed_text(row, notes), room, width)
        for name in names:
            lines += _line(name, ours_text(found.rows[row.id][name], notes, row.paper.change or ""), room, width)
    return [*lines, *_note_lines(notes, width), *_unmeasured(found, notes, width)]


def _note_lines(notes: Notes, width: int) -> list[str]:
    lines: list[str] = []
    for heading, texts in notes.lists().items():
        lines += ["", *wrap(heading, width)]
        lines += [_INDENT + line for said in texts for line in wrap(said, width - 2, indent="   ")]
    return lines


def _unmeasured(found: Answered, notes: Notes, width: int) -> list[str]:
    """Each reason once, and below it a line a row."""
    groups = by_reason(found, notes)
    lines = ["", NOWHERE_MEASURED] if groups else []
    for why, rows in groups.items():
        lines += [_INDENT + line for line in wrap(safe_text(f"{why}:"), width - 2, indent=_INDENT)]
        for row in rows:
            said = wrap(safe_text(f"{row.id} {row_text(row, notes)}"), width - 4, indent=_INDENT)
            lines += [2 * _INDENT + line for line in said]
    return lines


def _line(name: str, said: str, room: int, width: int) -> list[str]:
    start = f"{_INDENT}{safe_text(name).ljust(room)}  "
    first, *more = wrap(said, max(20, width - len(start)))
    return [start + first, *(" " * len(start) + line for line in more)]


def _claims(found: Answered, width: int) -> list[str]:
    notes = claim_notes(found)
    room = max((len(machine.name) for machine in found.machines), default=0)
    summary = [line for said in summary_texts(found) for line in wrap(said, width, indent=_INDENT)]
    lines = [*summary, ""] if summary else []
    for answers in by_claim(found).values():
        first = answers[0][1]
        lines += wrap(f"{first.statement} ({answer_place(first)})", width, indent=_INDENT)
        for machine, answer in answers:
            lines += _line(machine, claim_text(answer, notes), room, width)
    return [*lines, *_note_lines(notes, width)]


def _layers(found: Answered, width: int) -> list[str]:
    lines: list[str] = []
    for each in layers(found):
        notes = whole_notes(each)
        lines += wrap(f"{safe_text(each.machine)}: {whole_title(each)}", width)
        lines += [table(whole_rows(each, notes), WHOLE_HEADS, width, whole=True), *wrap(COULD_SEE, width)]
        lines += [*_note_lines(notes, width), ""]
        if each.apart is None:
            lines += wrap(safe_text(f"{each.machine}: layer by layer: {NOT_HERE}: {each.why}."), width)
        else:
            lines += wrap(safe_text(f"{each.machine}: {layers_title(each)}"), width)
            lines += [table(layer_rows(each), LAYER_HEADS, width, whole=True), *wrap(layers_sentence(each), width)]
        lines += [""]
    return lines[:-1]


def _marks(found: Answered, width: int) -> list[str]:
    heads = ("row", "quantity", *(machine.name for machine in found.machines))
    return [*wrap(marks_sentence(found), width), "", table(mark_rows(found), heads, width, whole=True)]


def mark_rows(found: Answered) -> list[tuple[str, ...]]:
    """Every row of the paper, with a word for each machine: measured, what its claim comes to, or why it is not."""
    return [
        (row.id, row.quantity, *(_mark(found.rows[row.id][machine.name]) for machine in found.machines))
        for row in found.paper.rows
    ]


def _mark(ours: Ours) -> str:
    if ours.word != NOT_HERE:
        return ours.word or "measured"
    return f"not here: {parted(ours.why)[0] or ours.why}"


def marks_sentence(found: Answered) -> str:
    """`S0: 51 rows; cpu2: 30 measured, 21 not here.`"""
    counts = []
    for machine in found.machines:
        missing = sum(found.rows[row.id][machine.name].word == NOT_HERE for row in found.paper.rows)
        counts.append(f"{safe_text(machine.name)}: {len(found.paper.rows) - missing} measured, {missing} not here")
    return f"{found.paper.paper}: {len(found.paper.rows)} rows; {'; '.join(counts)}."


WHOLE_HEADS = ("workload", "change", "interval", "n", "verdict", "MDE")
LAYER_HEADS = ("layer", "adds", "interval", "n", "verdict", "MDE")


def whole_title(each: Layers) -> str:
    """`the container in whole (compute of a mini-batch)`."""
    figures = dict.fromkeys(quantity.partition(": ")[2] for quantity in each.whole)
    return f"the container in whole ({', '.join(figures)})"


def layers_title(each: Layers) -> str:
    """`layer by layer: torch_train lenet5, mean step`."""
    return f"layer by layer: {each.workload}, {metric_name(each.apart.metric)}" if each.apart is not None else ""


def whole_notes(each: Layers) -> Notes:
    """The letters of the whole container's table: why a workload has no figure."""
    return notes_of(note for ours in each.whole.values() if ours.change is None for note in reason_notes(ours.why))


def whole_rows(each: Layers, notes: Notes) -> list[tuple[str, ...]]:
    """One row a workload; what was not measured has its reason in place of a verdict."""
    made: list[tuple[str, ...]] = []
    for quantity, ours in each.whole.items():
        name = quantity.partition(":")[0]
        if ours.change is None:
            made.append((name, "", "", "", not_here(ours.why, notes), ""))
            continue
        known = known_change(ours)
        change = change_texts(known) if known is not None else ("", too_few_for_interval(ours.n, ours.paired))
        seen = share_text(ours.mde) if ours.mde is not None else ""
        made.append((name, *change, str(ours.n), _word(ours.verdict, ours.margin), seen))
    return made


def _word(verdict: str | None, margin: float | None) -> str:
    words = {"cannot_tell": "cannot tell", "equivalent": f"equivalent ({share_text(margin or 0.0)})"}
    return words.get(verdict or "", verdict or "")


def layer_rows(each: Layers) -> list[tuple[str, ...]]:
    """The whole first, then what each layer adds to those before it."""
    if each.apart is None:
        return []
    named = [("the whole container", each.apart.total)]
    named += [(layer_name(layer.layer), layer.added) for layer in each.apart.layers if layer.added is not None]
    return [(name, *_layer_cells(found)) for name, found in named]


def _layer_cells(found: Comparison) -> tuple[str, ...]:
    effect = effect_of(found) if found.low is not None else ""  # without an interval it could be anything
    word = _word(found.verdict, found.margin)
    return effect, interval_of(found), str(found.n), word, sensitivity_of(found)


def layers_sentence(each: Layers) -> str:
    """What the layers come to, in one sentence."""
    if each.apart is None:
        return ""
    floor = each.apart.noise_floor
    told = noise_text(floor, each.apart.noise_most)
    noise = f" A/A noise, the same thing run twice: {told}." if floor is not None else ""
    guilty = ", ".join(layer_name(layer.layer) for layer in each.apart.guilty)
    said = f"Surely slower with it than without: {guilty}." if guilty else "No layer is surely slower than without it."
    return f"{said}{noise}"


_PARTS: Mapping[str, Callable[[Answered, int], list[str]]] = {
    "rows": _rows,
    "claims": _claims,
    "layers": _layers,
    "marks": _marks,
}


# The claims of a paper as its page tells them: a word a machine, and below it what the word rests on.
#
# Not in claims.py, which every report needs: a report does not import the papers' tables.

_MIXED = "mixed"
_COUNTED: Mapping[Word, tuple[str, str]] = {**COUNTED, NOT_MEASURED: (NOT_HERE, NOT_HERE)}
_COUNTED_MIXED = ("differs between its populations", "differ between their populations")


def by_claim(found: Answered) -> dict[str, list[tuple[str, Answer]]]:
    """Every claim, with what each machine says of it."""
    told = [(machine, answer) for machine, answers in found.claims.items() for answer in answers]
    return grouped(told, lambda pair: pair[1].id)


def summary_texts(found: Answered) -> list[str]:
    """`cpu2: of 9 take-aways, 0 hold, 1 does not hold, 0 undecided, 8 not measured here`; a line a machine."""
    return [safe_text(f"{machine}: {_paper_claims_summary(answers)}") for machine, answers in found.claims.items()]


def _paper_claims_summary(answers: Sequence[Answer]) -> str:
    claims = grouped(answers, lambda answer: answer.id)
    words = [{answer.word for answer in several} for several in claims.values()]
    counts = Counter(next(iter(each)) if len(each) == 1 else _MIXED for each in words)
    told = [count_text(counts[word], *forms) for word, forms in _COUNTED.items()]
    told += [count_text(counts[_MIXED], *_COUNTED_MIXED)] if counts[_MIXED] else []
    return f"of {count_text(len(words), 'take-away')}, {', '.join(told)}"


def claim_notes(found: Answered) -> Notes:
    """Every letter of the claims: reasons that they were not measured, and populations with long names."""
    met: list[Note] = []
    for mine in by_claim(found).values():
        for _, answer in mine:
            met += reason_notes(answer.why) if answer.word == NOT_MEASURED else where_notes([answer.where])
    return notes_of(met)


def claim_text(answer: Answer, notes: Notes) -> str:
    """`holds. Fetch stall, one worker against none: -84.4 % [-85.5, -83.8] over 6 blocks, should fall ...`."""
    if answer.word == NOT_MEASURED:
        return not_here(answer.why, notes)
    return safe_text(f"{WORDS[answer.word]}{where_text(answer.where, notes)}. {answer.why}")


def words_text(answers: Sequence[Answer], notes: Notes) -> str:
    """One word, and a letter for why there is none; where a machine has several populations, one of each."""
    return ", ".join(
        not_here(answer.why, notes) if answer.word == NOT_MEASURED else WORDS[answer.word] for answer in answers
    )


def evidence(found: Answered, notes: Notes) -> dict[str, list[tuple[str, str]]]:
    """Statement -> what each machine that has measured it rests its word on."""
    return collected(
        (answer.statement, (machine, claim_text(answer, notes)))
        for answers in by_claim(found).values()
        for machine, answer in answers
        if answer.word != NOT_MEASURED
    )
