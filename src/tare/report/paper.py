"""What `tare paper` shows in a terminal: the paper's table with one line a machine, its claims, its layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tare.analysis.claims.model import Answer
from tare.analysis.model import Comparison
from tare.analysis.papers.layers import Layers, layers
from tare.analysis.papers.rows import NOT_HERE, WORDS, Answered
from tare.report.claims import answer_effect, answer_place
from tare.report.columns import table, wrap
from tare.report.paper_words import (
    TOO_FEW,
    change_interval,
    change_text,
    machine_text,
    marks_of,
    marks_texts,
    not_here,
    ours_text,
    printed_text,
)
from tare.report.verdicts import effect_of, interval_of, sensitivity_of
from tare.report.why import layer_name
from tare.report.words import metric_name, safe_text, share_text

_INDENT = "  "
COULD_SEE = (
    "n is the number of blocks that hold both sides. MDE is the minimum detectable effect, the smallest that such a "
    "run sees with a chance of 80 %. Equivalent is within the margin in brackets."
)
CONDITIONS = "What differs from the paper's conditions:"
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
    marks = marks_of(found)
    names = [found.paper.paper, *(machine.name for machine in found.machines)]
    room = max(map(len, names))
    lines: list[str] = []
    for row in found.paper.rows:
        lines += wrap(f"{row.id}  {row.quantity} ({row.section})", width, indent=_INDENT)
        lines += _line(found.paper.paper, printed_text(row), room, width)
        for name, ours in found.rows[row.id].items():
            lines += _line(name, ours_text(ours, marks), room, width)
    if marks:
        lines += ["", CONDITIONS]
        lines += [_INDENT + line for said in marks_texts(marks) for line in wrap(said, width - 2, indent="   ")]
    return lines


def _line(name: str, said: str, room: int, width: int) -> list[str]:
    start = f"{_INDENT}{safe_text(name).ljust(room)}  "
    first, *more = wrap(said, max(20, width - len(start)))
    return [start + first, *(" " * len(start) + line for line in more)]


def _claims(found: Answered, width: int) -> list[str]:
    lines: list[str] = []
    room = max((len(machine.name) for machine in found.machines), default=0)
    for answers in by_claim(found).values():
        first = answers[0][1]
        lines += wrap(f"{first.statement} ({answer_place(first)})", width, indent=_INDENT)
        for machine, answer in answers:
            lines += _line(machine, claim_text(answer), room, width)
    return lines


def claim_text(answer: Answer) -> str:
    """`holds: -90 % [-95, -80], n 6. One worker against none: ...`."""
    word = WORDS[answer.word]
    where = f" ({answer.where})" if answer.where else ""
    if word == NOT_HERE:
        return not_here(answer.why)
    return safe_text(f"{word}{where}: {answer_effect(answer)}, n {answer.n}. {answer.why}")


def by_claim(found: Answered) -> dict[str, list[tuple[str, Answer]]]:
    """Every claim, with what each machine says of it."""
    told: dict[str, list[tuple[str, Answer]]] = {}
    for machine, answers in found.claims.items():
        for answer in answers:
            told.setdefault(answer.id, []).append((machine, answer))
    return told


def _layers(found: Answered, width: int) -> list[str]:
    lines: list[str] = []
    for each in layers(found):
        lines += wrap(f"{safe_text(each.machine)}: {whole_title(each)}", width)
        lines += [table(whole_rows(each), WHOLE_HEADS, width, whole=True), *wrap(COULD_SEE, width), ""]
        if each.apart is None:
            lines += wrap(safe_text(f"{each.machine}: layer by layer: {NOT_HERE}: {each.why}."), width)
        else:
            lines += wrap(safe_text(f"{each.machine}: {layers_title(each)}"), width)
            lines += [table(layer_rows(each), LAYER_HEADS, width, whole=True), *wrap(layers_sentence(each), width)]
        lines += [""]
    return lines[:-1]


WHOLE_HEADS = ("workload", "change", "interval", "n", "verdict", "MDE")
LAYER_HEADS = ("layer", "adds", "interval", "n", "verdict", "MDE")


def whole_title(each: Layers) -> str:
    """`the container in whole (compute of a mini-batch)`."""
    figures = dict.fromkeys(quantity.partition(": ")[2] for quantity in each.whole)
    return f"the container in whole ({', '.join(figures)})"


def layers_title(each: Layers) -> str:
    """`layer by layer: torch_train lenet5, step mean`."""
    return f"layer by layer: {each.workload}, {metric_name(each.apart.metric)}" if each.apart is not None else ""


def whole_rows(each: Layers) -> list[tuple[str, ...]]:
    """One row a workload; what was not measured has its reason in place of a verdict."""
    made: list[tuple[str, ...]] = []
    for quantity, ours in each.whole.items():
        name = quantity.partition(":")[0]
        if ours.change is None:
            made.append((name, "", "", "", not_here(ours.why) if ours.why else NOT_HERE, ""))
            continue
        seen = share_text(ours.mde) if ours.mde is not None else ""
        word = _word(ours.verdict, ours.margin)
        made.append((name, change_text(ours), change_interval(ours) or TOO_FEW, str(ours.n), word, seen))
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
    word = _word(found.verdict, found.margin)
    return effect_of(found), interval_of(found), str(found.n), word, sensitivity_of(found)


def layers_sentence(each: Layers) -> str:
    """What the layers come to, in one sentence."""
    if each.apart is None:
        return ""
    floor = each.apart.noise_floor
    noise = f" The same thing run twice differed by {share_text(floor)}." if floor is not None else ""
    guilty = ", ".join(layer_name(layer.layer) for layer in each.apart.guilty)
    said = f"Surely slower with it than without: {guilty}." if guilty else "No layer is surely slower than without it."
    return f"{said}{noise}"


_PARTS: Mapping[str, Callable[[Answered, int], list[str]]] = {"rows": _rows, "claims": _claims, "layers": _layers}
