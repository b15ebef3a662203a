"""What a user's own table may mislead by: rounded values, copied rows, unlike work, works that are mixed, two units.

A store has none of these: its times are nanoseconds, its trials have names, and its settings say what was run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import TypeGuard

from tare.analysis.compare import compare
from tare.analysis.directions import is_amount, kind_of
from tare.analysis.model import Comparison, Measurement
from tare.analysis.work import MODELS, UNLIKE_WORK, Columns, as_requested_note, is_per_sample, unlike_work, what_differs
from tare.base.rulings import Ruling
from tare.base.text import effect_text, share_text
from tare.records.model import grouped

COARSE, COPIED, UNITS = "compare.coarse-values", "compare.copied-rows", "compare.units"
COPIED_SIDE, MIXED = "compare.copied-side", "compare.mixed-work"
DECIMALS = 9
FAR = 50.0  # times as much: who compares such things means a unit
FEWEST_COPIED = 3  # different values of a side: fewer may tie by chance
LEAST_DIGITS = 4  # decimals or significant digits of a clock's value that no two trials share by chance, all of them
_JOBS = (*MODELS, "workload", "dataset")
_MACHINES = ("host", "hostname", "node", "machine", "device", "gpu", "gpu_name", "cpu")


def with_doubts(found: Comparison, values: Sequence[Measurement], columns: Columns) -> Comparison:
    """The comparison with what its table gives reason to doubt; `columns` are all of it, row by row as `values`."""
    sides = {name: [each for each in values if each.level == name] for name in (found.level, found.against)}
    rows = [place for place, each in enumerate(values) if each.level in sides]
    found = _apart_in_unit(_other_jobs(_unlike(found, values, columns, rows), values, columns, rows))
    found = _mixed(found, values, columns, rows)
    if copied(*sides.values()):
        sentence = (
            "Every value is there more than once, to its last digit: were rows copied, or one run written several "
            "times? A copy is no further trial, so nothing is claimed. Keep one row per trial, or name "
            "the run with --block."
        )
        found = replace(found, verdict="cannot_tell", more_trials=None,
                        notes=(*found.notes, Ruling(COPIED, "note", found.level, sentence)))  # fmt: skip
    elif kind_of(found.metric) == "speed" and same_values(*sides.values()):
        sentence = (
            "the values are the same on both sides, to their last digit: was one side copied from the other? No clock "
            "reads the same twice."
        )
        withheld = (*found.withheld, Ruling(COPIED_SIDE, "note", found.level, sentence))
        found = replace(found, verdict="cannot_tell", mde=None, more_trials=None, withheld=withheld)
    step = coarseness([each.value for each in values], found.metric)
    centre = median(each.value for side in sides.values() for each in side)
    if found.verdict == "equivalent" and step is not None and step > found.margin * centre:
        sentence = (
            f"the values are written in steps of {step:g}, {share_text(step / centre)} of their median: a difference "
            f"of {share_text(found.margin)} is rounded away."
        )
        withheld = (*found.withheld, Ruling(COARSE, "note", found.level, sentence))
        found = replace(found, verdict="cannot_tell", mde=None, withheld=withheld)
    return found


def same_values(ours: Sequence[Measurement], theirs: Sequence[Measurement]) -> bool:
    """Whether both sides have the same values, several, and with more digits than chance repeats."""
    left, right = (Counter((each.block, each.value) for each in side) for side in (ours, theirs))
    different = {value for _, value in left}
    fine = any(len(f"{value:.15g}".replace(".", "").strip("0")) >= LEAST_DIGITS for value in different)
    return left == right and len(different) >= FEWEST_COPIED and fine


def coarseness(values: Sequence[float], metric: str) -> float | None:
    """The step in which values are written, `0.1` of 0.1 and 0.2; None where they have all digits, or are counts."""
    for decimals in range(DECIMALS + 1):
        if all(round(value, decimals) == value for value in values):
            if decimals == 0 and not is_amount(metric):
                return None
            return math.gcd(*map(int, values)) if decimals == 0 and len(set(values)) > 1 else 10.0**-decimals
    return None


def copied(*sides: Sequence[Measurement]) -> bool:
    """Whether each value of each side stands there twice or more, without a block that would make them one."""
    if any(each.block is not None for side in sides for each in side):
        return False
    counts = [Counter(each.value for each in side) for side in sides]
    return all(len(count) >= FEWEST_COPIED and min(count.values()) > 1 for count in counts)


def _unlike(found: Comparison, values: Sequence[Measurement], columns: Columns, rows: Sequence[int]) -> Comparison:
    """With a note where a column that says how much work a step holds differs between the sides."""
    if is_per_sample(found.metric):
        return found
    several = unlike_work({name: cells[row] for name, cells in columns.items()} for row in rows)
    unlike = {name: its for name, its in several.items() if _differs(found, values, columns[name], rows)}
    return replace(found, notes=(*found.notes, as_requested_note(found.metric, unlike))) if unlike else found


def _other_jobs(found: Comparison, values: Sequence[Measurement], columns: Columns, rows: Sequence[int]) -> Comparison:
    """With a note where the sides ran another model, or on another machine, and that is not what is compared."""
    notes = list(found.notes)
    for code, names in ((UNLIKE_WORK, _JOBS), ("compare.unlike-conditions", _MACHINES)):
        unlike = {
            name: list(dict.fromkeys(str(cells[row]) for row in rows))
            for name, cells in columns.items()
            if name.rpartition(".")[2].lower() in names
            and any(cells[row] != values[row].level for row in rows)
            and _differs(found, values, cells, rows)
        }
        if unlike:
            sentence = f"The sides differ in {what_differs(unlike)}, so a difference may come from that."
            notes.append(Ruling(code, "note", found.level, sentence))
    return replace(found, notes=tuple(notes))


def _differs(
    found: Comparison, values: Sequence[Measurement], cells: Sequence[str | None], rows: Sequence[int]
) -> bool:
    """Whether a column has other values on one side than on the other, or the same in other shares."""
    ours, theirs = (Counter(cells[row] for row in rows if values[row].level == level)
                    for level in (found.level, found.against))  # fmt: skip
    return {key: n * theirs.total() for key, n in ours.items()} != {key: n * ours.total() for key, n in theirs.items()}


def _mixed(found: Comparison, values: Sequence[Measurement], columns: Columns, rows: Sequence[int]) -> Comparison:
    """Kept back where the sides mix several works, and one of these by itself has another answer than all together."""
    works = unlike_work({name: cells[row] for name, cells in columns.items()} for row in rows)
    jobs = [name for name in columns if name.rpartition(".")[2].lower() in _JOBS]
    names = [
        name
        for name in dict.fromkeys([*works, *jobs])
        if _varies_within(values, columns[name], rows) and 2 * len({columns[name][row] for row in rows}) <= len(rows)
    ]  # one with a value of its own in most rows was measured, and is no work
    if not names:
        return found
    cells = grouped(rows, lambda row: ", ".join(str(columns[name][row]) for name in names))
    alone = {cell: _alone(found, [replace(values[row], place=None) for row in its]) for cell, its in cells.items()}
    apart = [f"{cell}: {effect_text(one.effect or 0.0)}" for cell, one in alone.items() if _contradicts(one, found)]
    if not apart:
        return found
    sentence = (
        f"each side mixes rows of several works ({', '.join(names)}), and one figure for all hides what each costs: "
        f"by itself {'; '.join(apart[:4])}. Compare the rows of each in a table of its own."
    )
    withheld = (*found.withheld, Ruling(MIXED, "note", found.level, sentence))
    return replace(found, verdict="cannot_tell", mde=None, more_trials=None, withheld=withheld)


def _varies_within(values: Sequence[Measurement], cells: Sequence[str | None], rows: Sequence[int]) -> bool:
    """Whether a column has several values in one block of one side."""
    sides = grouped(rows, lambda row: (values[row].level, values[row].block))
    return any(len({cells[row] for row in its}) > 1 for its in sides.values())


def _alone(found: Comparison, values: Sequence[Measurement]) -> Comparison | None:
    """The same comparison of these rows; None where they are of one side."""
    if len({each.level for each in values}) < 2:
        return None
    rises = found.direction.rises
    return compare(
        values, against=found.against, margin=found.margin, metric=found.metric, rises=rises, resamples=0
    )[0]  # fmt: skip


def _contradicts(one: Comparison | None, found: Comparison) -> TypeGuard[Comparison]:
    """Whether it surely has another answer: where all together have none, a harm."""
    if one is None or one.effect is None or one.verdict == "cannot_tell":
        return False
    return one.verdict == "slower" if found.verdict == "cannot_tell" else one.verdict != found.verdict


def _apart_in_unit(found: Comparison) -> Comparison:
    if found.effect is None or abs(math.log1p(found.effect)) <= math.log(FAR):
        return found
    sentence = f"One side has more than {FAR:g} times as much as the other. Are both in the same unit?"
    return replace(found, notes=(*found.notes, Ruling(UNITS, "note", found.level, sentence)))
