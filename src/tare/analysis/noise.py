"""What the noise of a run looks like: between trials, over its blocks, and from glibc's malloc.

When a run may stop: a rule declared before it, and its price.

Looking after each block and stopping when the interval looks tight catches it where it is too tight by luck: at 95 %
it would cover 93 % (docs/decisions/0002-statistics.md). So a run with such a rule has all its intervals at 96.5 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from tare.analysis.compare import Contest, check_values, contests, pick_baseline, tested
from tare.analysis.estimators import line_up
from tare.analysis.labels import text
from tare.analysis.model import Comparison, Measurement
from tare.analysis.numeric.medians import ALPHA, FLOOR, variation
from tare.analysis.sentences import Stops, percent
from tare.records.model import Record, grouped, is_usable

DRIFT_SHARE = 0.02  # block to block, beyond what the trials' own noise explains
DRIFT_FACTOR = 2.0
LOUD_SHARE = 0.10  # standard deviation over mean that calls for a warning


@dataclass(frozen=True)
class FaultCount:
    """A count of minor faults, and what spread of it between identical trials cannot be chance."""

    metric: str
    where: str
    flips: Callable[[float, float], bool]  # of the least and the greatest


# The training alone shows it plainly; a whole job also counts the imports, tens of thousands of faults in each trial.
_COUNTS = (
    FaultCount("minor_faults_training", "in training", lambda least, most: most > 5_000 and most > 20 * least),
    FaultCount("minor_faults", "in the whole job", lambda least, most: most - least > 50_000 and most > 1.5 * least),
)


def throttled(levels: Mapping[str, Sequence[Record]]) -> list[str]:
    """Levels that a CPU quota stopped: a median step falls between the stops, and hides them."""
    return [
        f"{level!r} was stopped by its CPU quota for {stops.text()}: look at the whole run, the median step hides it."
        for level, records in levels.items()
        if (stops := Stops.of(records)).stopped
    ]


def malloc_lottery(records: Sequence[Record]) -> str | None:
    """A sentence if identical trials differ in page faults as only a memory allocator's luck makes them differ."""
    usable = list(filter(is_usable, records))
    for count in _COUNTS:
        with_it = [record for record in usable if count.metric in record.metrics]
        spreads = [_spread(group, count.metric) for group in _identical(with_it) if len(group) > 1]
        flipped = [spread for spread in spreads if count.flips(*spread)]
        if flipped:
            least, most = max(flipped, key=lambda spread: spread[1] - spread[0])
            return _lottery_sentence(count, least, most, with_it)
        if with_it:
            return None  # the plainer count was there, and steady
    return None


def _lottery_sentence(count: FaultCount, least: float, most: float, records: Sequence[Record]) -> str:
    seen = f"Identical trials had between {least:,.0f} and {most:,.0f} minor page faults {count.where}"
    if all(record.settings.get("workload.malloc") == "fixed" for record in records):
        return f"{seen}, although malloc's thresholds are fixed: look for memory pressure or huge pages."
    return (
        f"{seen}: whether glibc's malloc gives memory back flips between runs, and step times with it. "
        "Set `malloc: fixed` on the workload to end it."
    )


def _identical(records: Sequence[Record]) -> list[list[Record]]:
    return list(grouped(records, lambda record: text(dict(record.settings))).values())


def _spread(group: Sequence[Record], metric: str) -> tuple[float, float]:
    counts = [record.metrics[metric] for record in group]
    return min(counts), max(counts)


def loud_levels(measurements: Sequence[Measurement]) -> list[str]:
    """A sentence for each level whose trials vary by more than a tenth."""
    levels = grouped(measurements, lambda m: m.level)
    found = {level: variation([m.value for m in trials]) for level, trials in levels.items()}
    return [
        f"{level}: its trials vary by {percent(cv)} (standard deviation over mean): a noisy run."
        for level, cv in found.items()
        if cv is not None and cv > LOUD_SHARE
    ]


def drift(measurements: Sequence[Measurement]) -> str | None:
    """A sentence if blocks differ by more than the trials within them explain: the machine itself changed."""
    blocks, levels = _grid(measurements)
    if len(blocks) < 3 or len(levels) < 2:
        return None
    logs = np.array([[blocks[block][level] for level in levels] for block in blocks])
    of_blocks = logs.mean(axis=1)
    within = logs - of_blocks[:, None] - logs.mean(axis=0) + logs.mean()
    freedom = (len(blocks) - 1) * (len(levels) - 1)
    expected = float(np.sqrt((within**2).sum() / freedom / len(levels)))
    between = float(of_blocks.std(ddof=1))
    if between < DRIFT_SHARE or between < DRIFT_FACTOR * expected:
        return None
    return (
        f"The machine's own speed drifted from block to block by {percent(between)} (standard deviation); "
        "pairing by block takes that out."
    )


def _grid(measurements: Sequence[Measurement]) -> tuple[dict[str, dict[str, float]], list[str]]:
    """Log values of the blocks that hold every level once or more (the mean of several)."""
    levels = list(dict.fromkeys(m.level for m in measurements))
    means = {}
    for block, inside in grouped((m for m in measurements if m.block is not None), lambda m: str(m.block)).items():
        found = grouped(inside, lambda m: m.level)
        if len(found) == len(levels):
            means[block] = {level: fmean(math.log(m.value) for m in trials) for level, trials in found.items()}
    return means, levels


LOOKING_ALPHA = 0.035


def seen_alpha(seen: Sequence[int]) -> float:
    """Of a run to which blocks were added after it had been judged: each look at it takes its part (Bonferroni)."""
    return ALPHA / (1 + len(seen))


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
