"""In which order the trials of a table were run, and whether that order could make a difference by itself.

A machine's speed wanders: what is run next to each other is alike. All trials of one level and then all of the other
differ by that alone (43 to 64 % false claims in simulation), and so do levels that come in the same order in every
block (19 to 34 %). Ranks assume that order was left to chance, so where it was not, nothing is claimed: the effect and
its interval are shown, and the word is "cannot tell". docs/decisions/0024 has the simulation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from scipy import special

from tare.analysis.model import Comparison, Measurement
from tare.base.rulings import Ruling
from tare.records.trials import grouped

FEW_RUNS = 0.10  # a shuffled order has as few runs of one level as this with at most this probability
FIXED = 0.05  # and the same level first in as many blocks with this

SEQUENTIAL, FIXED_ORDER = "compare.run-one-after-another", "compare.fixed-order"
CODES = (SEQUENTIAL, FIXED_ORDER)


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
    if all(each.block is not None for each in (*ours, *theirs)):
        return _same_in_every_block(ours, theirs)
    placed = sorted([(each.place or 0.0, 0) for each in ours] + [(each.place or 0.0, 1) for each in theirs])
    sides = [side for _, side in placed]
    runs = 1 + sum(one != other for one, other in zip(sides, sides[1:], strict=False))
    if runs_at_most(runs, len(ours), len(theirs)) > FEW_RUNS:
        return None
    sentence = (
        "The trials of one level were run after those of the other, not shuffled (by their order in the table): what "
        "drifted meanwhile cannot be told from a difference, so nothing is claimed. Name the order in which they were "
        "run (--order COLUMN), or what was run together (--block COLUMN), or run them shuffled."
    )
    return Ruling(SEQUENTIAL, "note", "", sentence)


def _same_in_every_block(ours: Sequence[Measurement], theirs: Sequence[Measurement]) -> Ruling | None:
    first = list(_ours_first(ours, theirs))
    if not first:
        return None
    rare = min(sum(first), len(first) - sum(first))
    if 2 * float(special.bdtr(rare, len(first), 0.5)) > FIXED:
        return None
    sentence = (
        f"One level was run first in {len(first) - rare} of {len(first)} blocks (by their order in the table): what "
        "changes within a block cannot be told from a difference, so nothing is claimed. Name the order in which they "
        "were run (--order COLUMN), or shuffle within blocks."
    )
    return Ruling(FIXED_ORDER, "note", "", sentence)


def _ours_first(ours: Sequence[Measurement], theirs: Sequence[Measurement]) -> Iterator[bool]:
    """Of each block with both sides, whether ours came first on the whole."""
    left, right = (grouped(side, lambda each: each.block) for side in (ours, theirs))
    for block in left.keys() & right.keys():
        mine, other = (sum(each.place or 0.0 for each in side[block]) / len(side[block]) for side in (left, right))
        if mine != other:
            yield mine < other


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


def _log_choose(n: int, k: int) -> float:
    if k < 0 or k > n:
        return -math.inf
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
