"""Failures of trials: what is said of one, and when a side or the device is given up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from tare.base.errors import TareError
from tare.base.text import telling_lines
from tare.figures.evidence import THRESHOLDS
from tare.plan.matrix import Trial
from tare.records.model import FAILED, Record
from tare.records.store import Store
from tare.trial.rules import is_lost

TOO_LONG = (
    "If it only needs longer, set `limit` in the study; `--trial-limit 200steps` (or `3min`; in a study "
    "`steps` or `minutes` of the workload) ends a script early."
)
LAST_LINES = 6  # of what a failed workload printed
LONGEST_LINE = 150


def failure_text(name: str, record: Record, store: Store) -> str:
    """What failed, the last lines that it printed, and what is likely to help."""
    reason, *hints = map(str, record.reasons or (record.state,))
    _, err = store.output(record.trial, record.attempt)
    printed = telling_lines(err)
    if printed and printed[-1].strip()[:LONGEST_LINE] in reason:
        printed.pop()  # the reason has it
    shown = [f"    | {line[:LONGEST_LINE]}" for line in printed[-LAST_LINES:]]
    hints += [TOO_LONG] if record.state == "timeout" else []
    return "\n".join([f"{name} {record.state}: {reason}", *shown, *(f"  {hint}" for hint in hints)])


def first_reason(record: Record) -> str:
    return str(record.reasons[0] if record.reasons else record.state)


def refuse_lost(record: Record) -> None:
    """A GPU that is gone is gone for the next trial too."""
    if is_lost(record.reasons):
        raise TareError(f"the study was stopped, for no further trial can be run on this device:\n{record.reasons[0]}")


def platform_of(trial: Trial) -> str:
    return str(trial.settings["platform"])


class Breaker:
    """Counts failures: of each side, and in a row over all of them."""

    def __init__(self, platforms: Iterable[str] = ()) -> None:
        self._most = THRESHOLDS.breaker
        self._every = set(platforms)
        self._of_side: dict[str, list[str]] = defaultdict(list)
        self._in_a_row: list[str] = []
        self._platforms: set[str] = set()  # in the row

    def note(self, trial: Trial, record: Record) -> bool:
        """Whether the device itself is to blame: the same failure so many times in a row, on every platform."""
        if record.state not in FAILED:
            self._of_side[trial.side].clear()
            self._in_a_row.clear()
            self._platforms.clear()
            return False
        reason = first_reason(record)
        for row in (self._of_side[trial.side], self._in_a_row):
            if row and row[-1] != reason:
                row.clear()
            row.append(reason)
        if len(self._in_a_row) == 1:
            self._platforms.clear()
        self._platforms.add(platform_of(trial))
        return len(self._in_a_row) >= self._most and self._platforms >= self._every

    def is_hopeless(self, side: str) -> bool:
        return len(self._of_side[side]) >= self._most
