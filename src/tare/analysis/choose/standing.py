"""One configuration against others, in four words, with intervals that stay right although the best was looked for.

The lowest of twenty configurations is partly the luckiest (the winner's curse). So the intervals are simultaneous
(Bonferroni): with 95 % confidence all of those that might have been shown hold at once, and so does the one that is.
Configurations that share blocks are paired by block (docs/decisions/0024).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from tare.analysis.cells import few_runs, fixed_in_rounds
from tare.analysis.choose.configurations import Configuration, settings_keys
from tare.analysis.estimators import Sides, line_up
from tare.analysis.model import Estimate, Measurement
from tare.analysis.numeric.medians import ALPHA, FLOOR
from tare.analysis.tables.table import Table, run_order
from tare.records.model import TrialRow, grouped
from tare.records.schema import is_store

CONSIDERED = 1_000  # the nearest to beating a default: those far from it do not change the word
MARGIN = 0.05  # within this a configuration is as good as another
Standing: TypeAlias = Literal["better", "worse", "equivalent", "cannot_tell"]
Place: TypeAlias = Literal["beaten", "on_front", "equivalent", "cannot_tell"]


@dataclass(frozen=True)
class Contrast:
    """What one configuration takes more (or less) than another, as a share, and the word for it; less is better."""

    estimate: Estimate
    word: Standing

    @property
    def surely_below(self) -> bool:
        """Ours takes less, for sure."""
        return self.estimate.high is not None and self.estimate.high < 0

    @property
    def surely_above(self) -> bool:
        """Ours takes more, for sure."""
        return self.estimate.low is not None and self.estimate.low > 0

    @property
    def surely_not_worse(self) -> bool:
        """No worse than by the margin, for sure."""
        return self.estimate.high is not None and self.estimate.high <= MARGIN

    @property
    def surely_not_better(self) -> bool:
        """No better than by the margin, for sure."""
        return self.estimate.low is not None and self.estimate.low >= -MARGIN


def contrast(ours: Configuration, theirs: Configuration, figure: str, tries: int = 1) -> Contrast:
    """Ours against theirs, where it is one of `tries` that might have been shown instead."""
    level = 1 - ALPHA / max(1, tries)
    values = [each.values(figure) for each in (ours, theirs)]
    if any((side <= 0).any() for side in values):
        return Contrast(_medians(ours, theirs, figure, "some trials have nothing to be a share of"), "cannot_tell")
    sides = _lined_up(ours, theirs, figure)
    if sides.n < FLOOR:
        return Contrast(_medians(ours, theirs, figure, f"{sides.n} trials are too few for an interval"), "cannot_tell")
    shift = sides.shift(level)
    low, high = map(math.expm1, shift.interval(level))
    many = f"; one of {tries} that were looked at" if tries > 1 else ""
    method = f"{shift.method} ({100 * level:.4g} %{many})"
    word: Standing = "equivalent" if low >= -MARGIN and high <= MARGIN else "cannot_tell"
    if high < 0 and low < -MARGIN:
        word = "better"
    elif low > 0 and high > MARGIN:
        word = "worse"
    return Contrast(Estimate(math.expm1(shift.centre), low, high, sides.n, method, level), word)


def _lined_up(ours: Configuration, theirs: Configuration, figure: str) -> Sides:
    """Paired by the blocks that both were run in, where these are enough; else as two samples."""
    left, right = ([Measurement("", trial.metrics[figure], trial.block_id) for trial in each.trials]
                   for each in (ours, theirs))  # fmt: skip
    paired = line_up(left, right)
    if paired.paired and paired.n >= FLOOR:
        return paired
    return line_up(*([Measurement("", each.value) for each in side] for side in (left, right)))


def _medians(ours: Configuration, theirs: Configuration, figure: str, why: str) -> Estimate:
    below = theirs.centre(figure)
    value = ours.centre(figure) / below - 1 if below > 0 else 0.0
    return Estimate(value, None, None, min(ours.n, theirs.n), f"ratio of medians; {why}")


@dataclass(frozen=True)
class Against:
    """A default against all other configurations: the word, and the one that surely beats it by most."""

    word: Place
    winner: Configuration | None = None


def default_against(today: Configuration, found: Iterable[Configuration], figures: Sequence[str]) -> Against:
    """*beaten*: another is surely better in a figure and surely no worse (within the margin) in the others;
    *on_front*: every other is surely worse in a figure; *equivalent*: every other is in a figure surely no better than
    by the margin; else *cannot_tell*.
    """
    others = [each for each in found if each is not today]
    tries = len(others) * len(figures)
    if len(others) > CONSIDERED:
        others.sort(key=lambda each: max(_ratio(each.centre(figure), today.centre(figure)) for figure in figures))
        others = others[:CONSIDERED]
    contrasts = [(other, [contrast(other, today, figure, tries) for figure in figures]) for other in others]
    beating = [
        (other, math.prod(1 + each.estimate.value for each in several))
        for other, several in contrasts
        if any(each.surely_below for each in several) and all(each.surely_not_worse for each in several)
    ]
    if beating:
        return Against("beaten", min(beating, key=lambda pair: (pair[1], pair[0].label))[0])
    if all(any(each.surely_above for each in several) for _, several in contrasts):
        return Against("on_front")
    if all(any(each.surely_not_better for each in several) for _, several in contrasts):
        return Against("equivalent")
    return Against("cannot_tell")


IN_SEQUENCE, FIXED = (
    f"{what} (by their order in the table): what drifted meanwhile cannot be separated from a difference, so nothing "
    "is called beaten or surely better. --order names the column with the order in which they were run, or is "
    "`shuffled`."
    for what in (
        "the trials of a configuration were run one after another, not shuffled",
        "configurations were run in the same order in every round, not shuffled",
    )
)


def order_note(source: Path | Table, rows: Sequence[TrialRow], order: str | None) -> str | None:
    """What is wrong with the order of a table's trials; None where chance explains it. A store shuffles in blocks."""
    places = None if isinstance(source, Path) and is_store(source) else run_order(source, order)
    if places is None or len(places) != len(rows):
        return None
    ordered = [row for _, row in sorted(zip(places, rows, strict=True), key=lambda pair: pair[0])]
    groups = grouped(ordered, lambda row: row.group).values()
    levels = [settings_keys(its) for its in groups]
    return IN_SEQUENCE if any(map(few_runs, levels)) else FIXED if any(map(fixed_in_rounds, levels)) else None


def _ratio(ours: float, theirs: float) -> float:
    return ours / theirs if theirs > 0 else math.inf if ours > 0 else 1.0


def told_apart(ours: Configuration, theirs: Configuration, figures: Sequence[str], tries: int) -> bool:
    """Whether the two surely differ in any of the figures."""
    found = (contrast(ours, theirs, figure, tries) for figure in figures)
    return any(each.surely_below or each.surely_above for each in found)
