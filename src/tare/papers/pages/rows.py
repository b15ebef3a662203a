"""A row of a paper's table in one line: what the paper printed, what was found here, and what the trials had."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_lowercase
from typing import Any, NamedTuple, TypeAlias

from tare.base.declare import before
from tare.base.text import (
    count_text,
    cpu_text,
    effect_text,
    going_on,
    interval_text,
    metric_name,
    numbers_in_one_unit,
    quantity_texts,
    safe_text,
    share_text,
    size_text,
)
from tare.ext.analysis import CACHE, collected, too_few_for_interval
from tare.papers.claims.model import BELOW_LEAST, LARGE, figure_words, is_tiny, times
from tare.papers.tables.model import Row
from tare.papers.tables.picking import Machine
from tare.papers.tables.rows import NOT_HERE, Answered, Ours

# What would stand in cell after cell stands once below the table, and a letter in the cell stands for it.

Note: TypeAlias = tuple[str, str]  # the heading of the list that it stands in, and its text

CONDITIONS = "What differs from the paper's conditions:"
REMARKS = "What to know of the figures here:"
REASONS = "Why something was not measured:"
TAINTS = "What else differs between the two sides, and could be what changes the figure:"
POPULATIONS = "Which trials are meant:"
HAZARDS = "What to know of the printed figures:"
_HEADINGS = (CONDITIONS, REMARKS, REASONS, TAINTS, POPULATIONS, HAZARDS)

SHORT = 48  # characters of a reason that still stand in a cell
MOST_TAINTS = 8
_DETAILS = re.compile(r" \([a-z0-9_]+\)|\b\d[\d.]*(?= s\b)")  # the name of a figure, a number of seconds


@dataclass(frozen=True)
class Notes:
    """The letters of a part, and what each stands for."""

    said: Mapping[Note, tuple[str, str]] = field(default_factory=dict)  # a note without details -> letter, text

    def mark(self, notes: Iterable[Note]) -> str:
        """` (a, m)`; nothing for what has no letter."""
        letters = [self.said[key][0] for key in map(_key, notes) if key in self.said]
        return f" ({', '.join(letters)})" if letters else ""

    def lists(self) -> dict[str, list[str]]:
        """Heading -> `a: scale small, on the CPU, 160 items`, and what else stands below it."""
        said = self.said.items()
        return collected((heading, f"{letter}: {safe_text(text)}") for (heading, _), (letter, text) in said)


NO_NOTES = Notes()


def notes_of(met: Iterable[Note]) -> Notes:
    """A letter for each, list after list, in the order in which a table meets them."""
    alike_ones: dict[Note, dict[str, None]] = {}
    for note in sorted(met, key=lambda note: _HEADINGS.index(note[0])):
        alike_ones.setdefault(_key(note), {})[note[1]] = None
    return Notes({key: (_letters(place), first_of(texts)) for place, (key, texts) in enumerate(alike_ones.items())})


def _key(note: Note) -> Note:
    heading, text = note
    return heading, alike(text) if heading == REASONS else text


def alike(why: str) -> str:
    """A reason without the details in which those of several rows differ."""
    return _DETAILS.sub("", why)


def first_of(several: Mapping[str, object]) -> str:
    """Of texts that differ in details alone, the first."""
    return f"{next(iter(several))}{', or the like' if len(several) > 1 else ''}"


def _letters(place: int) -> str:
    """a to z, then aa to zz, then aaa: from place 0 on, without end."""
    found = ""
    while place >= 0:
        place, last = divmod(place, len(ascii_lowercase))
        found = ascii_lowercase[last] + found
        place -= 1
    return found


def reason_text(why: str) -> str:
    """`only one model was trained`: a sentence that goes on where another began."""
    return safe_text(going_on(why).rstrip("."))


def parted(why: str) -> tuple[str, str]:
    """A reason as what stands in a cell and what stands below: `no power sensor`, and the whole sentence.

    A short one stands in the cell alone; one that is long and has no short beginning, below alone.
    """
    said = reason_text(why)
    if len(said) <= SHORT:
        return said, ""
    head, colon, _ = said.partition(": ")
    is_whole = head.count("`") % 2 == 0 and head.count("(") == head.count(")")
    return (head if colon and is_whole and len(head) <= SHORT else ""), said


def reason_notes(why: str) -> list[Note]:
    """A reason that stands below."""
    _, below = parted(why)
    return [(REASONS, below)] if below else []


def not_here(why: str, notes: Notes) -> str:
    """`not measured here: s4-gpu cannot be run there (k)`."""
    head, _ = parted(why)
    return f"{NOT_HERE}{f': {head}' if head else ''}{notes.mark(reason_notes(why))}"


def where_text(where: str, notes: Notes) -> str:
    """` (torch 2.13)`: the population that a word is of; a long name by its letter."""
    if len(where) > SHORT:
        return notes.mark([(POPULATIONS, where)])
    return f" ({where})" if where else ""


def where_notes(wheres: Iterable[str]) -> list[Note]:
    return [(POPULATIONS, where) for where in wheres if len(where) > SHORT]


def _taints_text(taints: Sequence[str]) -> str:
    more = len(taints) - MOST_TAINTS
    told = "; ".join(each.rstrip(".") for each in taints[:MOST_TAINTS])
    return told + (f"; and {more} more (--json has them all)" if more > 0 else "")


def cell_notes(ours: Ours) -> list[Note]:
    """What the letters at the end of a measured cell stand for: its conditions, remarks and taints.

    A remark is a note of its own: cells that differ in it alone share the letter of their conditions.
    """
    conditions = [(CONDITIONS, ", ".join(ours.conditions))] if ours.conditions else []
    tainted = [(TAINTS, _taints_text(ours.taints))] if ours.taints else []
    return [*conditions, *((REMARKS, remark) for remark in ours.remarks), *tainted]


def ours_notes(ours: Ours) -> list[Note]:
    """All that stands below for one cell."""
    if ours.word == NOT_HERE:
        return reason_notes(ours.why)
    return [*cell_notes(ours), *where_notes(each.where for each in (ours, *ours.also))]


def hazard_notes(row: Row) -> list[Note]:
    """What is wrong with what the paper printed."""
    return [(HAZARDS, row.hazard)] if row.hazard else []


NOWHERE_MEASURED = "Rows that were measured on no machine, by the reason:"


def measured_rows(found: Answered) -> list[Row]:
    """Those that any machine has measured; all of them where there is no machine."""
    return [row for row in found.paper.rows if not found.machines or _is_measured(found, row)]


def _unmeasured_rows(found: Answered) -> list[Row]:
    return [row for row in found.paper.rows if found.machines and not _is_measured(found, row)]


def measuring(found: Answered) -> list[str]:
    """The machines that have measured a row; the others would be a column of reasons."""
    return [each.name for each in found.machines if any(row[each.name].word != NOT_HERE for row in found.rows.values())]


def not_measuring_text(found: Answered) -> str:
    """`None of these rows was measured on h200.`"""
    others = [each.name for each in found.machines if each.name not in measuring(found)]
    return f"None of these rows was measured on {' and '.join(others)}." if others else ""


def _is_measured(found: Answered, row: Row) -> bool:
    return any(ours.word != NOT_HERE for ours in found.rows[row.id].values())


def table_notes(found: Answered) -> Notes:
    """Every letter of the table and of the groups below it."""
    met: list[Note] = []
    for row in measured_rows(found):
        met += [note for name in measuring(found) for note in ours_notes(found.rows[row.id][name])]
    for row in _unmeasured_rows(found):
        whys = _whys(found, row).values()
        met += [note for why in whys if len(set(whys)) > 1 and parted(why)[0] for note in reason_notes(why)]
    met += [note for row in found.paper.rows for note in hazard_notes(row)]
    return notes_of(met)


def by_reason(found: Answered, notes: Notes) -> dict[str, list[Row]]:
    """Reason -> the rows that no machine has measured; where only details differ, as the first says."""
    told: dict[tuple[str, ...], dict[str, list[Row]]] = {}
    for row in _unmeasured_rows(found):
        whys = _whys(found, row)
        key = tuple(map(alike, whys.values()))
        told.setdefault(key, {}).setdefault(_heading(whys, notes), []).append(row)
    return {first_of(several): [row for rows in several.values() for row in rows] for several in told.values()}


def _whys(found: Answered, row: Row) -> dict[str, str]:
    return {name: reason_text(ours.why) for name, ours in found.rows[row.id].items()}


def _heading(whys: Mapping[str, str], notes: Notes) -> str:
    """The reason in whole where all machines have the same, else each machine's in short, with its letter."""
    if len(set(whys.values())) == 1:
        return next(iter(whys.values()))
    told = []
    for name, why in whys.items():
        head, whole = parted(why)
        told.append(f"{name}: {head}{notes.mark(reason_notes(why))}" if head else f"{name}: {whole}")
    return "; ".join(told)


_HALVED = -0.5
_LESS_WORD = "less"
_IN_TIMES = re.compile(r"\dx( less| faster)?$")  # how a paper ends a change that it tells in times


class Change(NamedTuple):
    """A change and its interval, as shares."""

    share: float
    low: float
    high: float


@dataclass(frozen=True)
class _Way:
    """A change as a number of times, and the words around it."""

    times: Callable[[float], float]
    number: Callable[[float], str]
    words: str = "{}"

    def alone(self, share: float) -> str:
        return self.number(self.times(share))


def decrease(share: float) -> float:
    """A change as S1 tells it: (old - new) / new. A quarter of the old is 3."""
    return 1 / (1 + share) - 1


_FACTOR = _Way(lambda share: 1 + share, times)
_LESS = _Way(lambda share: 1 / (1 + share), times, "{} less")
_DECREASE = _Way(decrease, lambda times: f"{times:.3g}x" if abs(times) < 1000 else f"{times:,.0f}x", "decreases by {}")
_NO_DECREASE = _Way(lambda share: 1 + share, times, "rises to {}")


def known_change(ours: Ours) -> Change | None:
    """None where there is no change, or too few blocks for its interval."""
    if ours.change is None or ours.low is None or ours.high is None:
        return None
    return Change(ours.change, ours.low, ours.high)


def change_texts(change: Change, printed: str = "", *, as_decrease: bool = False) -> tuple[str, str]:
    """The change and its interval: `+1.6 %` and `[+0.4, +2.9]`, or `6.1x less` and `[5.2x, 7.0x]`.

    `printed` is the change as the paper has it: it decides, beside its size, in what it is told.
    """
    way = _way(change, printed, as_decrease)
    if way is None:
        beside = (change.low, change.high)
        return effect_text(change.share, beside), interval_text(*beside, [change.share])
    ends = sorted(map(way.times, (change.low, change.high)))
    return way.words.format(way.alone(change.share)), f"[{', '.join(map(way.number, ends))}]"


def range_text(shares: Sequence[float], change: Change | None, printed: str = "", *, as_decrease: bool = False) -> str:
    """The least and the greatest of other changes, told in the same way as this one."""
    way = _way(change, printed, as_decrease) if change is not None else None
    shown: Callable[[float], str] = way.alone if way is not None else effect_text
    return " to ".join(dict.fromkeys(shown(share) for share in (min(shares), max(shares))))


def _way(change: Change, printed: str, as_decrease: bool) -> _Way | None:
    """In times where the paper tells it so or it is large; None is in percent."""
    if change.low <= -1:
        return None  # nothing is left: there is no number of times
    if as_decrease:
        return _DECREASE if change.share < 0 else _NO_DECREASE
    in_times, says_less = _IN_TIMES.search(printed) is not None, _LESS_WORD in printed.split()
    halved = change.share < _HALVED
    if change.share < 0 and ((in_times and (says_less or halved)) or (says_less and halved)):
        return _LESS
    return _FACTOR if in_times or change.share >= LARGE else None


def excludes_zero(change: Change) -> bool:
    """Whether the interval, as it is shown, lies on one side of no change."""
    low, high = interval_text(change.low, change.high, [change.share])[1:-1].split(", ")
    return low.startswith("+") or high.startswith("-")


_MINI_BATCH = "mini_batch"
_SHARE = "_share"  # how the name of a share ends


def printed_text(row: Row, notes: Notes = NO_NOTES) -> str:
    """`bare 3.91 ms, container 6.01 ms: +53.7 % (p)`: as the paper has it, and a letter for what is wrong with it."""
    return f"{row.paper.text()}{notes.mark(hazard_notes(row))}"


def row_text(row: Row, notes: Notes) -> str:
    """`median power (bare 43.7 W, container 40.8 W) (p)`: a row that nobody has measured, after its number."""
    return f"{row.quantity} ({row.paper.text()}){notes.mark(hazard_notes(row))}"


def ours_text(ours: Ours, notes: Notes = NO_NOTES, printed: str = "") -> str:
    """`bare 1.20 ms, docker 1.22 ms: +1.6 % [+0.4, +2.9], 6 blocks (a)`, or why there is nothing.

    `printed` is the change as the paper has it.
    """
    if ours.word == NOT_HERE:
        return not_here(ours.why, notes)
    if ours.word is None:
        said = _figures(ours, printed)
    else:  # `holds (torch 2.13.0): +1.6 % [+0.4, +2.9], 6 blocks`: a claim, and of which population
        several = (ours, *ours.also)
        said = "; ".join(f"{each.word}{where_text(each.where, notes)}: {_change(each)}" for each in several)
    return safe_text(f"{said}{notes.mark(cell_notes(ours))}")


def _figures(ours: Ours, printed: str) -> str:
    if len(ours.sides) == 1 and ours.change is None:
        return _value(ours)
    texts = _texts(ours.metric, list(ours.sides.values()))
    sides = ", ".join(f"{_side(name, ours)} {text}" for name, text in zip(ours.sides, texts, strict=True))
    tainted = f"; tainted ({count_text(len(ours.taints), 'difference')})" if ours.taints else ""
    zeros = [f"{none} of {count_text(of, 'trial')} of {_side(name, ours)}" for name, (none, of) in ours.zeros.items()]
    no_ratio = f"no ratio, since it is zero in {' and in '.join(zeros)}"
    said = no_ratio if zeros else f"{_change(ours, printed)}{_verdict(ours)}"
    return f"{sides}: {said}{_per_mini_batch(ours)}{_elsewhere(ours, printed)}{tainted}"


def _per_mini_batch(ours: Ours) -> str:
    """`; per mini-batch 125 ms, 24.1 ms`, where the sides are of a whole epoch."""
    told = _texts(f"{_MINI_BATCH}_s", list(ours.mini_batch))
    return f"; per mini-batch {', '.join(told)}" if told else ""


def _side(name: str, ours: Ours) -> str:
    """A level in words; a figure of the same trials by its name."""
    if ours.metric in ours.sides:
        return metric_name(name)
    return before().setting(CACHE).levels.get(name, name)


def _value(ours: Ours) -> str:
    (value,) = ours.sides.values()
    # ` (2 of 6 have none: writeback count is zero)`: there is nothing that it could have a share in.
    zeros = (f" ({none} of {of} have none: {metric_name(whole)} is zero)" for whole, (none, of) in ours.zeros.items())
    beside = f"{count_text(ours.n, 'trial')}{''.join(zeros)}{_per_mini_batch(ours)}{_other_values(ours)}"
    if ours.low is None or ours.high is None:
        return f"{_texts(ours.metric, [value])[0]}, {beside}"
    tiny = _tiny(ours.metric, [value, ours.low, ours.high])
    shown = [0.0 if is_less else each for is_less, each in zip(tiny, (value, ours.low, ours.high), strict=True)]
    numbers, unit = numbers_in_one_unit(ours.metric, shown)
    least = BELOW_LEAST.removesuffix(f" {unit}")
    text, low, high = (least if is_less else number for is_less, number in zip(tiny, numbers, strict=True))
    interval = "" if text == high == least else f" [{low}, {high}]"
    return f"{text} {unit}".rstrip() + f"{interval}, {beside}"


def _texts(metric: str, values: Sequence[float]) -> list[str]:
    """The values of one figure, side by side; of a share that is next to nothing, only that it is."""
    tiny = _tiny(metric, values)
    told = iter(quantity_texts(metric, [value for value, is_less in zip(values, tiny, strict=True) if not is_less]))
    return [BELOW_LEAST if is_less else next(told) for is_less in tiny]


def _tiny(metric: str, values: Sequence[float]) -> list[bool]:
    return [metric.endswith(_SHARE) and is_tiny(value) for value in values]


def _other_values(ours: Ours) -> str:
    if not ours.elsewhere:
        return ""
    ends = dict.fromkeys(_texts(ours.metric, [min(ours.elsewhere), max(ours.elsewhere)]))
    return f"; {' to '.join(ends)} in {count_text(len(ours.elsewhere), 'other configuration')}"


def _change(ours: Ours, printed: str = "") -> str:
    """A change with its interval, of a claim its figure; without one it could be anything, and is not told."""
    if ours.change is None:
        return "no figure"
    known = known_change(ours)
    if known is None:
        return too_few_for_interval(ours.n, ours.paired)
    if ours.word is not None:
        told = figure_words(ours.kind, *known)
    else:
        told = " ".join(change_texts(known, printed, as_decrease=ours.as_decrease))
    return f"{told}, {count_text(ours.n, 'block' if ours.paired else 'trial')}"


def _verdict(ours: Ours) -> str:
    """What the interval does not show at a glance: that little or nothing changes, or that nothing can be told."""
    known = known_change(ours)
    if known is None or ours.margin is None:
        return ""
    within = "changed by less than" if excludes_zero(known) else "no change within"
    words = {"equivalent": f", {within} {share_text(ours.margin)}", "cannot_tell": ", cannot tell"}
    return words.get(ours.verdict or "", "")


def _elsewhere(ours: Ours, printed: str) -> str:
    """The least and the greatest change of other configurations, and how many have none."""
    told, known = "", known_change(ours)
    if ours.elsewhere and (known is not None or ours.zeros):
        ends = range_text(ours.elsewhere, known, printed, as_decrease=ours.as_decrease)
        told = f"; {ends} in {count_text(len(ours.elsewhere), 'other configuration')}"
    if ours.without_ratio:
        told += f"; no ratio in {count_text(ours.without_ratio, 'other configuration')}"
    return told


def machine_text(machine: Machine) -> str:
    """`Neoverse-N1, 2 cores, 7.6 GiB, kernel 6.18; Python 3.11.7, torch 2.13.0`."""
    device, software = device_text(machine), software_text(machine)
    return "; ".join(part for part in (device, software) if part) or "refused every study of this paper"


def device_text(machine: Machine) -> str:
    words: Mapping[str, Callable[[Any], str]] = {
        "board": lambda value: cpu_text(str(value)),
        "cpu": lambda value: cpu_text(str(value)),
        "cores": lambda value: count_text(int(value), "core"),
        "memory_bytes": lambda value: size_text(float(value)),
        "gpu": str,
        "kernel": "kernel {}".format,
    }
    return safe_text(", ".join(words[name](value) for name, value in machine.device.items()))


def software_text(machine: Machine) -> str:
    names = {"python.version": "Python", "torch.version": "torch", "torch.cuda": "CUDA"}
    known = machine.software
    return safe_text(", ".join(f"{words} {known[name]}" for name, words in names.items() if name in known))
