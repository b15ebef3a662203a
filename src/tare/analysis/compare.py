"""One level against another, in one of four words.

*equivalent* when the whole interval lies inside the margin (also when it leaves out zero), else *slower* or *faster*
when it leaves out zero, else *cannot tell*. docs/decisions/0002-statistics.md says why the interval is what it is.

The smallest effect that a run could have seen, and how many trials a verdict would take.

Start from the noncentral t distribution at the level that the rank test really attains, then pay for ranks: their
asymptotic efficiency under normal noise is 3/pi, and the few extreme orders that decide at small n cost a little
more. `benchmarks/coverage.py` plants effects of this size and counts how many are found (80 % within 2 points).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median

import numpy as np

from tare.analysis import sentences
from tare.analysis.cells import kept_back
from tare.analysis.directions import direction_of
from tare.analysis.estimators import Shift, Sides, in_common, line_up, resampled_shift
from tare.analysis.model import Comparison, Estimate, Measurement, Word
from tare.analysis.numeric.distributions import noncentrality, normal_quantile, t_quantile
from tare.analysis.numeric.medians import (
    ALPHA,
    FLOOR,
    RESAMPLES,
    Floats,
    holm_levels,
    median_estimate,
    median_of,
    ratio_of_medians,
)
from tare.analysis.numeric.ranks import mann_whitney_null, signed_rank_null
from tare.base.declare import STEP
from tare.base.errors import StudyError, unknown_name
from tare.base.rulings import Ruling
from tare.records.model import grouped

POWER = 0.8
ENOUGH_TO_DRAW = 10  # blocks, or trials a side
MOST = 10_000  # a plan for more trials than this helps nobody
_RANK_COST = math.sqrt(math.pi / 3)
_FEW_ORDERS_COST = 0.05  # fitted by simulation, n = 6..20, levels 0.5..5 %


def t_detectable(n: int, alpha: float = ALPHA, *, paired: bool) -> float:
    """Smallest shift that a t test sees with 80 % power, in standard deviations of what it is made of.

    Paired: of a block's log-ratio, over n blocks. Unpaired: of a single trial, with n trials a side (the table of
    docs/explanation/verdicts.md: 1.80 at n = 6).
    """
    return _noncentrality(n - 1 if paired else 2 * n - 2, alpha) * math.sqrt((1 if paired else 2) / n)


def _noncentrality(freedom: float, alpha: float) -> float:
    """The shift, in standard errors, that a two-sided t test at `alpha` sees with 80 % power."""
    threshold = -t_quantile(freedom, alpha / 2)
    return noncentrality(freedom, 1 - POWER, threshold)


@lru_cache(maxsize=4096)
def detectable(n: int, alpha: float = ALPHA, *, paired: bool) -> float:
    """The same for the test that tare uses: ranks where they reach the level, t where they cannot."""
    null = signed_rank_null(n) if paired else mann_whitney_null(n, n)
    k = null.critical(alpha / 2)
    if k < 0:
        return t_detectable(n, alpha, paired=paired)
    if paired and k == 0:  # every block must point the same way: that has a closed form
        return normal_quantile(POWER ** (1 / n))
    cost = _RANK_COST * (1 + _FEW_ORDERS_COST / max(k, 0.5))
    return t_detectable(n, 2 * null.at_most(k), paired=paired) * cost


def mde(deviation: float, n: int, alpha: float = ALPHA, *, paired: bool) -> float | None:
    """The smallest effect, as a share, that n blocks (or trials a side) see with 80 % power; None below the floor.

    `deviation` is the standard deviation of block log-ratios (paired) or of a side's log values (unpaired).
    """
    return math.expm1(detectable(n, alpha, paired=paired) * deviation) if n >= FLOOR else None


def t_mde(standard_error: float, freedom: float, alpha: float = ALPHA) -> float:
    """The same for a t interval, of which the standard error is known."""
    return math.expm1(_noncentrality(freedom, alpha) * standard_error * _unbiased(freedom))


def expected_mde(cv: float, n: int, *, paired: bool = True, alpha: float = ALPHA) -> float | None:
    """Before a run: what n blocks (or trials a side) would see, if trials vary by `cv` within a block."""
    log_deviation = math.sqrt(math.log1p(cv**2))
    return mde(log_deviation * (math.sqrt(2) if paired else 1), n, alpha, paired=paired)


def trials_for(
    effect: float, deviation: float, alpha: float = ALPHA, *, paired: bool, start: int = FLOOR, far: int = 0
) -> int | None:
    """The smallest n, from `start` on, whose smallest detectable effect is `effect` or less; None beyond 10,000.

    Where so many lie `far` off on one side, the interval must also leave out the pairs that they make with the others.
    """
    if effect <= 0:
        return None
    shift = math.log1p(effect)

    def seen_by(n: int) -> bool:
        return detectable(n, alpha, paired=paired) * deviation <= shift and _leaves_out(far, n, alpha, paired)

    low, high = max(FLOOR, start), MOST
    if seen_by(low):
        return low
    if not seen_by(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if seen_by(middle) else (middle, high)
    return high


def _leaves_out(far: int, n: int, alpha: float, paired: bool) -> bool:
    """Whether the interval of ranks ends before all pairs that so many of n make."""
    if far == 0:
        return True
    null = signed_rank_null(n) if paired else mann_whitney_null(n, n)
    return null.critical(alpha / 2) >= far * n - (far * (far - 1) // 2 if paired else 0)


def _unbiased(freedom: float) -> float:
    """A sample's standard deviation is a little small on average; this makes up for it (5 % at n = 6)."""
    return 1 + 1 / (4 * freedom)


USUAL_BASELINE = "bare"
TIE = 1e-11  # logs are rounded to 1e-12: an interval that ends on the margin must not pass it by that


@dataclass(frozen=True)
class Contest:
    """Two levels to be compared; a list of them is a family, corrected together."""

    level: str
    against: str
    ours: Sequence[Measurement]
    theirs: Sequence[Measurement]
    floor: float | None = None  # A/A: by how much two runs of the same thing differed
    notes: tuple[Ruling, ...] = ()
    metric: str = ""  # its own, in a family of several metrics; else the family's
    floor_most: float | None = None  # and by how much they may differ (95 %): one draw says little
    sides: Sides | None = None  # already lined up, where blocks alone do not tell how
    unit: str = STEP  # what a step is for people

    @property
    def noise(self) -> Floor | None:
        return None if self.floor is None else Floor(self.floor, self.floor_most)

    def with_noise(self, noise: Floor | None) -> Contest:
        """The same with this floor; what is not known is left as it is."""
        return self if noise is None else replace(self, floor=noise.seen, floor_most=noise.most)


def compare(
    measurements: Sequence[Measurement],
    *,
    against: str | None = None,
    margin: float,
    metric: str = "value",
    alpha: float = ALPHA,
    resamples: int = RESAMPLES,
    rises: bool | None = None,
) -> list[Comparison]:
    """Every level against one, Holm-corrected as one family, in the order in which the levels appear."""
    check_values(measurements)
    levels = list(dict.fromkeys(m.level for m in measurements))
    base = pick_baseline(levels, against)
    notes = () if against is not None else (sentences.baseline_chosen(base),)
    family = contests(measurements, base, notes)
    return judge(family, margin=margin, metric=metric, alpha=alpha, resamples=resamples, rises=rises)


def check_values(measurements: Iterable[Measurement]) -> None:
    """A ratio needs positive numbers: anything else is refused, with the place where it stands."""
    for m in measurements:
        if not (math.isfinite(m.value) and m.value > 0):
            where = f"level {m.level!r}" + (f", block {m.block}" if m.block is not None else "")
            raise StudyError(f"{where}: {m.value!r} cannot be compared; values must be finite and more than zero.")


def pick_baseline(levels: Sequence[str], against: str | None) -> str:
    """The level to compare against: the one asked for, else `bare`, else the first."""
    if not levels:
        raise StudyError("There is nothing to compare: no measurement was given.")
    if len(levels) == 1:
        raise StudyError(f"There is nothing to compare: {levels[0]!r} is the only level. A comparison needs two.")
    if against is None:
        return USUAL_BASELINE if USUAL_BASELINE in levels else levels[0]
    if against not in levels:
        raise StudyError(unknown_name("level", against, levels))
    return against


def contests(
    measurements: Sequence[Measurement],
    against: str,
    notes: tuple[Ruling, ...] = (),
    levels: Sequence[str] | None = None,
) -> list[Contest]:
    """Each other level against `against`. An A/A repeat makes the noise floor, and of its block's two runs both count:
    a baseline that is run twice is known better, and that is worth a third of the run.
    """
    levels = list(dict.fromkeys(m.level for m in measurements)) if levels is None else levels
    sides = grouped(measurements, lambda m: (m.level, m.twin != 0))
    twins = [(sides.get((level, True), []), sides.get((level, False), [])) for level in levels]
    floor = largest_floor(noise_floor(twin, first) for twin, first in twins)
    theirs = both_runs(sides.get((against, False), []), sides.get((against, True), []))
    return [
        Contest(level, against, both_runs(sides.get((level, False), []), sides.get((level, True), [])), theirs,
                floor.seen if floor else None, notes, floor_most=floor.most if floor else None)
        for level in levels
        if level != against
    ]  # fmt: skip


RUNS_AGREE = 3 * 1.4826  # times the median distance of two runs of the same thing: beyond it, one of them is a spike


def both_runs(first: Sequence[Measurement], twin: Sequence[Measurement]) -> list[Measurement]:
    """A side with its A/A repeats, where blocks tell which runs belong together; two samples stay as large as they are.

    A repeat that lies far from its first run is left out: the mean of a spike and a usual run would skew the ratios,
    and ranks would claim too much (8 % instead of 5 % with 15 % spikes). A level whose first runs all failed is not
    made of its repeats alone.
    """
    if not first or any(m.block is None for m in (*first, *twin)):
        return list(first)
    known = {m.block: math.log(m.value) for m in first}
    distances = [abs(math.log(m.value) - known[m.block]) for m in twin if m.block in known]
    far = RUNS_AGREE * median(distances) if distances else math.inf
    return [*first, *(m for m in twin if m.block not in known or abs(math.log(m.value) - known[m.block]) <= far)]


@dataclass(frozen=True)
class Floor:
    """By how much the same thing differed from itself, as shares: as it was seen, and what it may be (95 %)."""

    seen: float
    most: float | None  # None below six blocks


def noise_floor(twin: Sequence[Measurement], first: Sequence[Measurement]) -> Floor | None:
    """Of the two runs of the same thing in this run; None where it was not run twice."""
    sides = line_up(twin, first)
    if sides.empty:
        return None
    seen, most = abs(math.expm1(sides.by_ranks.centre)), None
    if sides.n >= FLOOR:
        most = max(abs(math.expm1(end)) for end in sides.shift(1 - ALPHA).interval(1 - ALPHA))
    return Floor(seen, most)


def largest_floor(floors: Iterable[Floor | None]) -> Floor | None:
    """What several A/A repeats show together: the largest of each."""
    known = [floor for floor in floors if floor is not None]
    if not known:
        return None
    return Floor(max(each.seen for each in known), max((each.most for each in known if each.most), default=None))


def judge(
    family: Sequence[Contest],
    *,
    margin: float,
    metric: str,
    alpha: float = ALPHA,
    resamples: int = RESAMPLES,
    rises: bool | None = None,
    power: bool = True,
) -> list[Comparison]:
    """Compare a family of contests; `resamples` 0 leaves out the bootstrap beside the headline, no `power` the `mde`.

    `rises` is the user's statement that more of the metric is better; None: its name decides.
    """
    if not (math.isfinite(margin) and margin >= 0):
        raise StudyError(f"A margin is a share of zero or more, such as 0.05 or 5 %; not {margin!r}.")
    sides = [contest.sides or line_up(contest.ours, contest.theirs) for contest in family]
    found = tested(sides, alpha)
    levels = [each.level for each in found if each is not None]
    shared = (sentences.holm(levels),) if len(levels) > 1 else ()
    made = []
    for contest, side, test in zip(family, sides, found, strict=True):
        plain = _without_interval(contest, side, margin, contest.metric or metric, rises)
        if test is not None:
            plain = _with_interval(plain, side, test, shared, power)
        made.append(_with_medians(kept_back(plain, contest.ours, contest.theirs), contest, side, resamples))
    return made


@dataclass(frozen=True)
class Tested:
    """A shift and the significance level at which Holm lets it be judged."""

    shift: Shift
    level: float
    strictest: float  # confidence that Holm might have needed: whether ranks reach this decides how it is judged

    def interval(self) -> tuple[float, float]:
        """The effect's interval, as shares."""
        low, high = self.shift.interval(1 - self.level)
        return math.expm1(low), math.expm1(high)

    def standard_error(self) -> float:
        """From the interval itself, so that a spike which does not widen it does not blind the power either."""
        return self.shift.standard_error(1 - self.level)

    def mde(self, side: Sides) -> float | None:
        """The smallest effect that such a run sees with 80 % power: by drawing its blocks (or trials) again.

        Below ten, what they show of their noise is too little, and normal noise is assumed where that sees less.
        """
        error = self.standard_error()
        if self.shift.ranks:
            normal = mde(side.deviation(error), side.effective_n, self.level, paired=side.paired)
            drawn = resampled_shift(side, self.level, POWER)
            if normal is None or drawn is None:
                return normal
            return math.expm1(drawn) if side.n >= ENOUGH_TO_DRAW else max(normal, math.expm1(drawn))
        return t_mde(error, self.shift.freedom, self.level)


def tested(sides: Sequence[Sides], alpha: float) -> list[Tested | None]:
    """Ranks where they can reach the strictest confidence that Holm may ask for, else t; None below the floor."""
    able = [side for side in sides if side.n >= FLOOR]
    strictest = 1 - alpha / max(1, len(able))
    shifts = [side.shift(strictest) for side in able]
    levels = holm_levels([shift.p() for shift in shifts], alpha)
    found = (Tested(shift, level, strictest) for shift, level in zip(shifts, levels, strict=True))
    return [next(found) if side.n >= FLOOR else None for side in sides]


def _without_interval(contest: Contest, side: Sides, margin: float, metric: str, rises: bool | None) -> Comparison:
    """What can be said of too few trials: the effect as it was seen, and no claim."""
    notes = [*contest.notes, *(sentences.about(contest.level, note) for note in side.notes)]
    direction = direction_of(metric, rises)
    if direction.rises or not direction.settled:
        notes.append(sentences.direction_note(metric, direction))
    for level, trials in ((contest.level, contest.ours), (contest.against, contest.theirs)):
        if not trials:
            notes.append(sentences.no_trial(level))
    if 0 < side.n < FLOOR and not side.empty:  # without a common block its note has said so
        notes.append(sentences.about(contest.level, sentences.too_few(side.n, side.paired)))
    return Comparison(
        metric=metric,
        level=contest.level,
        against=contest.against,
        effect=None if side.empty else math.expm1(side.by_ranks.centre),
        low=None,
        high=None,
        verdict="cannot_tell",
        margin=margin,
        n=side.n,
        mde=None,
        notes=tuple(notes),
        paired=side.paired,
        method="Hodges-Lehmann, no interval",
        more_trials=None if side.empty else max(FLOOR - side.n, 0) or None,
        aa_floor=contest.floor,
        aa_most=contest.floor_most,
        ours=_median(contest.ours) if contest.ours else None,
        theirs=_median(contest.theirs) if contest.theirs else None,
        direction=direction,
        unit=contest.unit,
    )


def _with_interval(plain: Comparison, side: Sides, test: Tested, shared: tuple[Ruling, ...], power: bool) -> Comparison:
    """The effect with its interval, and the word that follows from it."""
    shift, level, (low, high) = test.shift, test.level, test.interval()
    notes = [*plain.notes, *shared]
    if shift.for_unlike:
        notes.append(sentences.about(plain.level, sentences.UNLIKE_SIDES))
    elif not shift.ranks:
        notes.append(sentences.about(plain.level, sentences.few_ranks(side.n, side.paired, test.strictest)))
    found = replace(
        plain,
        effect=math.expm1(shift.centre),
        low=low,
        high=high,
        verdict=word(low, high, plain.margin, plain.direction.rises),
        mde=test.mde(side) if power else None,
        notes=tuple(notes),
        method=f"{shift.method} ({sentences.percent(shift.attained(1 - level))})",
        p=shift.p(),
        tost_p=shift.p_equivalence(plain.margin),
        confidence=1 - level,
        more_trials=None,
    )
    return _held_to_floor(found) or _with_rare_trials(found, side) or _with_more_trials(found, side, test)


def word(low: float, high: float, margin: float, rises: bool = False) -> Word:
    """The word for an interval of the effect; with `rises`, a metric of which more is better."""
    if -margin - TIE <= low and high <= margin + TIE:
        return "equivalent"
    if low > 0:
        return "faster" if rises else "slower"
    if high < 0:
        return "slower" if rises else "faster"
    return "cannot_tell"


def _held_to_floor(found: Comparison) -> Comparison | None:
    """A difference that is no larger than the same thing's from itself is not claimed; None where it is larger."""
    if found.verdict not in ("slower", "faster") or found.aa_floor is None or found.effect is None:
        return None
    if abs(found.effect) > found.aa_floor:
        return None
    needed = math.ceil(found.n * (found.aa_floor / abs(found.effect)) ** 2)  # chance shrinks with root n
    note = sentences.about(found.level, sentences.below_floor(found.effect, found.aa_floor))
    held = replace(found, verdict="cannot_tell", notes=(*found.notes, note))
    return _out_of_reach(held) if needed > MOST else replace(held, more_trials=max(1, needed - found.n))


RARE = 2  # trials: one that stands out may be the machine's own
FAR = 6 * 1.4826  # median absolute deviations: how far off a trial is whose side is noisy, and which is not that noise


def _with_rare_trials(found: Comparison, side: Sides) -> Comparison | None:
    """Ranks leave out trials that are rare and slow, and users pay for them: with two or more no one says equivalent.

    Nor does a gate pass them where they alone made the interval wide. None where the mean over all trials lies within
    the margin too, or where one trial alone takes it out of it. Of a rate the inverse counts, what the same work takes:
    the mean of rates hides a trial that almost stands still.
    """
    if found.verdict not in ("equivalent", "cannot_tell"):
        return None
    ours, theirs = (1 / each if found.direction.rises else each for each in (side.ours, side.theirs))
    mean, bound = math.log(ours.mean() / theirs.mean()), math.log1p(found.margin) + TIE
    if abs(mean) <= bound:
        return None
    is_noisy = found.verdict == "cannot_tell"
    more = more_far_off(np.log(ours), np.log(theirs), bound, paired=side.paired, is_noisy=is_noisy)
    count = more if mean > 0 else -more
    if count < RARE:
        return None
    if mean > 0:
        hides = sentences.rare_and_slow(found, found.level, count, len(ours), math.expm1(mean))
        return replace(found, verdict="cannot_tell", withheld=(*found.withheld, hides))
    if is_noisy:
        return None
    note = sentences.rare_and_slow(found, found.against, count, len(theirs), math.expm1(mean))  # no fault of the level
    return replace(found, verdict="cannot_tell", notes=(*found.notes, note))


def more_far_off(ours: Floats, theirs: Floats, bound: float, *, paired: bool, is_noisy: bool) -> int:
    """How many more of our trials than of theirs lie above the usual by more than the bound; all in logarithms.

    Of noisy sides those count that are not this noise, and none where the usual ones are as far apart already.
    """
    noise = ours - theirs if paired else np.concatenate([ours, theirs])
    centre = median_of(noise)
    mine, other = (noise, -noise) if paired else (ours - centre, theirs - centre)
    if is_noisy:
        apart = abs(centre) if paired else 0.0
        if apart > bound:
            return 0
        bound = max(bound, apart + FAR * median_of(np.abs(noise - centre)))
    return int(np.count_nonzero(mine > bound)) - int(np.count_nonzero(other > bound))


def _out_of_reach(found: Comparison) -> Comparison:
    return replace(found, notes=(*found.notes, sentences.about(found.level, sentences.out_of_reach(MOST))))


def _with_more_trials(found: Comparison, side: Sides, test: Tested) -> Comparison:
    """About how many more would settle it: seeing the effect as it is now, or fitting inside the margin.

    The few that lie far off are taken as noise, or as what ranks must leave out: by which of the two takes less.
    """
    if found.verdict != "cannot_tell" or found.effect is None:
        return found
    shift = abs(math.log1p(found.effect))
    target = math.expm1(max(shift, math.log1p(found.margin) - shift))
    seen = [(side, 0, test.standard_error())]
    usual, far = side.without_far(FAR)
    if far:
        seen.append((usual, far, usual.shift(1 - test.level).standard_error(1 - test.level)))
    start = side.effective_n + 1
    known = [
        trials_for(target, held.deviation(error), test.level, paired=side.paired, start=start, far=count)
        for held, count, error in seen
    ]
    needed = min((each for each in known if each is not None), default=None)
    if needed is None:
        return _out_of_reach(found)
    return replace(found, more_trials=needed - side.effective_n)


def _with_medians(found: Comparison, contest: Contest, side: Sides, resamples: int) -> Comparison:
    if side.empty:
        return found
    ratio = None
    if resamples:
        ratio = ratio_of_medians(
            side.ours, side.theirs, paired=side.paired, level=found.confidence, resamples=resamples
        )
    ours, theirs = in_common(contest.ours, contest.theirs)
    return replace(found, ours=_median(ours), theirs=_median(theirs), ratio_of_medians=ratio)


def _median(side: Sequence[Measurement]) -> Estimate:
    """Of the first runs: an A/A repeat is shown apart."""
    return median_estimate([m.value for m in side if not m.twin] or [m.value for m in side])
