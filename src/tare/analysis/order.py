"""In which order the trials of a table were run, and whether that order could make a difference by itself.

A machine's speed wanders: what is run next to each other is alike. All trials of one level and then all of the other
differ by that alone (60 % false claims in noise that wanders), and so do levels that come in the same order in every
block (54 % in a drift), and levels of blocks that interleave, A0-4 B0-4 B5-9 A5-9 (40 %). Ranks assume that order was
left to chance, so where it was not, nothing is claimed: the effect and its interval are shown, and the word is "cannot
tell". docs/decisions/0024 has the simulation.

A block is what was run together. A trial that was run again later, since its first attempt could not be used, is
compared with what was run an hour before: it is no longer of its block, and is left out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

import numpy as np
from numpy.typing import NDArray

from tare.analysis.distributions import heads_at_most, normal_quantile
from tare.analysis.model import Comparison, Measurement
from tare.base.rulings import Ruling
from tare.records.trials import collected, grouped

FEW_RUNS = 0.10  # a shuffled order has as few runs of one level as this with at most this probability
FIXED = 0.05  # and the same level first in as many blocks with this

SEQUENTIAL, FIXED_ORDER = "compare.run-one-after-another", "compare.fixed-order"
CODES = (SEQUENTIAL, FIXED_ORDER)


RARE = "compare.rare-and-slow"
KEPT_BACK = (*CODES, RARE, "compare.copied-rows")  # notes that take a sure word away


def kept_back(found: Comparison, ours: Sequence[Measurement], theirs: Sequence[Measurement]) -> Comparison:
    """The same without a sure word, and with the reason, where the order alone could have made the difference."""
    why = order_doubt(ours, theirs)
    if why is None:
        return found
    return replace(found, verdict="cannot_tell", notes=(*found.notes, replace(why, subject=found.level)),
                   more_trials=None)  # fmt: skip


def order_doubt(ours: Sequence[Measurement], theirs: Sequence[Measurement]) -> Ruling | None:
    """What is wrong with the order, by the places that the trials have in it; None where chance explains it."""
    if not ours or not theirs or any(each.place is None for each in (*ours, *theirs)):
        return None
    every = [(each, 0) for each in ours] + [(each, 1) for each in theirs]
    placed = sorted(every, key=lambda pair: pair[0].place or 0.0)
    if all(each.block is not None for each, _ in placed):
        blocks = [each.block for each, _ in placed]
        doubt = _same_in_every_block(ours, theirs)
        if doubt is not None or _runs(blocks) == len(set(blocks)):  # else one block was begun before another ended
            return doubt
    if runs_at_most(_runs([side for _, side in placed]), len(ours), len(theirs)) > FEW_RUNS:
        return None
    sentence = (
        "The trials of one level were run after those of the other, not shuffled (by their order in the table): what "
        "drifted meanwhile cannot be separated from a difference, so nothing is claimed. Name the order in which they "
        "were run (--order COLUMN), or what was run together (--block COLUMN), or run them shuffled."
    )
    return Ruling(SEQUENTIAL, "note", "", sentence)


def _same_in_every_block(ours: Sequence[Measurement], theirs: Sequence[Measurement]) -> Ruling | None:
    first = list(_ours_first(ours, theirs))
    if not first:
        return None
    rare = min(sum(first), len(first) - sum(first))
    if 2 * heads_at_most(rare, len(first)) > FIXED:
        return None
    sentence = (
        f"One level was run first in {len(first) - rare} of {len(first)} blocks (by their order in the table): what "
        "changes within a block cannot be separated from a difference, so nothing is claimed. Name the order in which "
        "they were run (--order COLUMN), or shuffle within blocks."
    )
    return Ruling(FIXED_ORDER, "note", "", sentence)


def _ours_first(ours: Sequence[Measurement], theirs: Sequence[Measurement]) -> Iterator[bool]:
    """Of each block with both sides, whether ours came first on the whole."""
    left, right = (grouped(side, lambda each: each.block) for side in (ours, theirs))
    for block in left.keys() & right.keys():
        mine, other = (sum(each.place or 0.0 for each in side[block]) / len(side[block]) for side in (left, right))
        if mine != other:
            yield mine < other


def _runs(labels: Sequence[Hashable]) -> int:
    return 1 + sum(one != other for one, other in pairwise(labels))


def runs_at_most(runs: int, n: int, m: int) -> float:
    """How likely a shuffled order of n and m has so few runs of one side, or fewer (Wald and Wolfowitz)."""
    whole = _log_choose(n + m, n)
    found = 0.0
    for count in range(2, runs + 1):
        half = count // 2
        if count % 2 == 0:
            terms = [math.log(2) + _log_choose(n - 1, half - 1) + _log_choose(m - 1, half - 1)]
        else:
            terms = [_log_choose(n - 1, half) + _log_choose(m - 1, half - 1),
                     _log_choose(n - 1, half - 1) + _log_choose(m - 1, half)]  # fmt: skip
        found += sum(math.exp(term - whole) for term in terms)
    return min(1.0, found)


def few_runs(levels: Sequence[Hashable]) -> bool:
    """Whether equal ones of many levels stand together more often than shuffled ones do (runs of several kinds)."""
    counts, n = list(Counter(levels).values()), len(levels)
    if len(counts) < 2 or max(counts) < 2:
        return False
    squares, cubes = sum(count**2 for count in counts), sum(count**3 for count in counts)
    mean = 1 + (n**2 - squares) / n
    variance = (squares * (squares + n * (n + 1)) - 2 * n * cubes - n**3) / (n**2 * (n - 1))
    return variance > 0 and (_runs(levels) + 0.5 - mean) / math.sqrt(variance) < normal_quantile(FEW_RUNS)


_SHUFFLES = 199
_SEED = 20_261_117


def fixed_in_rounds(levels: Sequence[Hashable]) -> bool:
    """Whether levels come at the same places of a round more often than shuffled ones do.

    A round ends before the first level that it has had already, so that shuffling it gives another that was as likely,
    whether levels were shuffled in rounds or throughout. A level's places, counted from the middle of each round, are
    summed; the squares of these sums are small where it came early as often as late.
    """
    number = {level: place for place, level in enumerate(dict.fromkeys(levels))}
    rounds: list[dict[int, None]] = [{}]
    for level in levels:
        if number[level] in rounds[-1]:
            rounds.append({})
        rounds[-1][number[level]] = None
    if len(rounds) < 2:
        return False
    which = np.repeat(np.arange(len(rounds)), [len(each) for each in rounds])
    places = np.concatenate([np.arange(len(each)) - (len(each) - 1) / 2 for each in rounds])
    ordered = np.array([level for each in rounds for level in each])

    def apart(order: NDArray[np.int64]) -> float:
        return float((np.bincount(order, places) ** 2).sum())

    chance, found = np.random.default_rng(_SEED), apart(ordered)
    as_far = sum(apart(ordered[np.argsort(which + chance.random(len(which)))]) >= found for _ in range(_SHUFFLES))
    return (1 + as_far) / (1 + _SHUFFLES) <= FIXED


def _log_choose(n: int, k: int) -> float:
    if k < 0 or k > n:
        return -math.inf
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


FAR_TIMES = 4.0  # as far from the middle of its block as this many times what blocks usually reach, and
WHOLE_TIMES = 1.5  # the same, of what blocks reach with all their levels: no trial of them lies farther out
FAR_S = 120.0  # at least so far: a machine does not change much in less


def usual_reach(started: Iterable[tuple[Hashable, float]]) -> float:
    """How far from the middle of a block its trials begin at most.

    The median over blocks, so that a few of which a trial was run again do not set the scale.
    """
    reach = [max(abs(time - median(times)) for time in times) for times in collected(started).values()]
    return median(reach) if reach else 0.0


def far_from_block(started: Sequence[tuple[Hashable, float]], usual_s: float = 0.0) -> list[bool]:
    """Of each `(block, start in seconds)`, whether it began far from the rest of its block.

    `usual_s` is how far blocks reach with the trials of other levels, which may lie between these and take long. Of a
    block of two both are far: neither is more of it than the other.
    """
    middles = {block: median(times) for block, times in collected(started).items()}
    far = max(FAR_TIMES * usual_reach(started), WHOLE_TIMES * usual_s, FAR_S)
    return [abs(time - middles[block]) > far for block, time in started]


def together(
    ours: Sequence[Measurement], theirs: Sequence[Measurement]
) -> tuple[list[Measurement], list[Measurement], Ruling | None]:
    """Both sides without what was run far from the rest of its block, and what there is to say of it."""
    every = [*ours, *theirs]
    if any(each.started_s is None or each.block is None for each in every):
        return list(ours), list(theirs), None
    flags = far_from_block(
        [(each.block, each.started_s or 0.0) for each in every], max((each.reach_s for each in every), default=0.0)
    )
    if not any(flags):
        return list(ours), list(theirs), None
    lost = {each.block for each, far in zip(every, flags, strict=True) if far}
    kept = [None if far else each for each, far in zip(every, flags, strict=True)]
    left, right = ([each for each in side if each is not None] for side in (kept[: len(ours)], kept[len(ours) :]))
    return left, right, apart_note(_minutes_apart(every, lost), len(lost))


def _minutes_apart(every: Sequence[Measurement], blocks: set[str | None]) -> float:
    times: Mapping[Hashable, list[float]] = collected((each.block, each.started_s or 0.0) for each in every)
    return max(max(times[block]) - min(times[block]) for block in blocks) / 60


def apart_note(minutes: float, blocks: int) -> Ruling:
    which = "1 block has" if blocks == 1 else f"{blocks} blocks have"
    sentence = (
        f"{which} trials that began up to {minutes:.0f} min apart, far more than the others: one was run again later. "
        "They are not compared with each other: such a block is left out, or what was run far from the rest of it."
    )
    return Ruling("compare.block-apart", "note", "", sentence)
