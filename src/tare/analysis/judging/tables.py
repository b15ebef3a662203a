"""What a user's own table may mislead by: rounded values, copied rows, unlike work, two units.

A store has none of these: its times are nanoseconds, its trials have names, and its settings say what was run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from tare.analysis.direction import is_amount
from tare.analysis.judging.work import as_requested_note, is_per_sample, unlike_work
from tare.analysis.model import Comparison, Measurement
from tare.base.rulings import Ruling
from tare.base.text import share_text

COARSE, COPIED, UNITS = "compare.coarse-values", "compare.copied-rows", "compare.units"
DECIMALS = 9
FAR = 50.0  # times as much: who compares such things means a unit
FEWEST_COPIED = 3  # different values of a side: fewer may tie by chance

Columns = Mapping[str, Sequence[str | None]]


def with_doubts(found: Comparison, values: Sequence[Measurement], columns: Columns) -> Comparison:
    """The comparison with what its table gives reason to doubt; `columns` are all of it, row by row as `values`."""
    sides = {name: [each for each in values if each.level == name] for name in (found.level, found.against)}
    rows = [place for place, each in enumerate(values) if each.level in sides]
    found = _apart_in_unit(_unlike(found, values, columns, rows))
    if copied(*sides.values()):
        sentence = (
            "Every value is there more than once, to its last digit: were rows copied, or one run written several "
            "times? A copy is no further trial, so nothing is claimed. Keep one row per trial, or name "
            "the run with --block."
        )
        found = replace(found, verdict="cannot_tell", more_trials=None,
                        notes=(*found.notes, Ruling(COPIED, "note", found.level, sentence)))  # fmt: skip
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
    unlike = {}
    for name, its in several.items():
        shares = [
            Counter(columns[name][row] for row in rows if values[row].level == level)
            for level in (found.level, found.against)
        ]
        if {key: n * shares[1].total() for key, n in shares[0].items()} != {
            key: n * shares[0].total() for key, n in shares[1].items()
        }:
            unlike[name] = its
    return replace(found, notes=(*found.notes, as_requested_note(found.metric, unlike))) if unlike else found


def _apart_in_unit(found: Comparison) -> Comparison:
    if found.effect is None or abs(math.log1p(found.effect)) <= math.log(FAR):
        return found
    sentence = f"One side has more than {FAR:g} times as much as the other. Are both in the same unit?"
    return replace(found, notes=(*found.notes, Ruling(UNITS, "note", found.level, sentence)))
