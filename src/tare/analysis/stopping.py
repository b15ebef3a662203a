"""When a run may stop: a rule declared before it, and its price.

Looking after each block and stopping when the interval looks tight catches it where it is too tight by luck: at 95 %
it would cover 93 % (docs/decisions/0002-statistics.md). So a run with such a rule has all its intervals at 96.5 %.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tare.analysis.compare import Contest, check_values, contests, pick_baseline, tested
from tare.analysis.model import Comparison, Measurement
from tare.analysis.sides import line_up
from tare.analysis.stats import FLOOR

LOOKING_ALPHA = 0.035


def enough(measurements: Sequence[Measurement], *, against: str, until: float, floor: int = FLOOR) -> bool:
    """Whether every level has `floor` blocks and an interval no wider than plus or minus `until`."""
    check_values(measurements)
    levels = list(dict.fromkeys(m.level for m in measurements))
    if len(levels) < 2 or against not in levels:
        return False
    return family_enough(contests(measurements, pick_baseline(levels, against)), until=until, floor=floor)


def family_enough(family: Sequence[Contest], *, until: float, floor: int = FLOOR) -> bool:
    """The same for contests that are already made."""
    sides = [line_up(contest.ours, contest.theirs) for contest in family]
    if not sides or any(side.n < max(floor, FLOOR) for side in sides):
        return False
    intervals = [test.interval() for test in tested(sides, LOOKING_ALPHA) if test is not None]
    return all((high - low) / 2 <= until for low, high in intervals)


def reached(comparisons: Iterable[Comparison], *, until: float, floor: int = FLOOR) -> bool:
    """Whether these comparisons, as judged, meet the rule."""
    widths = [half_width(found) if found.n >= floor else None for found in comparisons]
    return bool(widths) and all(width is not None and width <= until for width in widths)


def half_width(found: Comparison) -> float | None:
    """Half the width of the interval, as a share; None where there is no interval."""
    return None if found.low is None or found.high is None else (found.high - found.low) / 2
