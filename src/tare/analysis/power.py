"""The smallest effect that a run could have seen, and how many trials a verdict would take.

Start from the noncentral t distribution at the level that the rank test really attains, then pay for ranks: their
asymptotic efficiency under normal noise is 3/pi, and the few extreme orders that decide at small n cost a little
more. `benchmarks/coverage.py` plants effects of this size and counts how many are found (80 % within 2 points).
"""

from __future__ import annotations

import math
from functools import lru_cache

from scipy import special

from tare.analysis.ranks import mann_whitney_null, signed_rank_null
from tare.analysis.stats import ALPHA, FLOOR

POWER = 0.8
MOST = 10_000  # a plan for more trials than this helps nobody
_RANK_COST = math.sqrt(math.pi / 3)
_FEW_ORDERS_COST = 0.05  # fitted by simulation, n = 6..20, levels 0.5..5 %


def t_detectable(n: int, alpha: float = ALPHA, *, paired: bool) -> float:
    """Smallest shift that a t test sees with 80 % power, in standard deviations of what it is made of.

    Paired: of a block's log-ratio, over n blocks. Unpaired: of a single trial, with n trials a side (the table of
    docs/explanation/validity.md: 1.80 at n = 6).
    """
    return _noncentrality(n - 1 if paired else 2 * n - 2, alpha) * math.sqrt((1 if paired else 2) / n)


def _noncentrality(freedom: float, alpha: float) -> float:
    """The shift, in standard errors, that a two-sided t test at `alpha` sees with 80 % power."""
    threshold = -float(special.stdtrit(freedom, alpha / 2))
    return float(special.nctdtrinc(freedom, 1 - POWER, threshold))


@lru_cache(maxsize=4096)
def detectable(n: int, alpha: float = ALPHA, *, paired: bool) -> float:
    """The same for the test that tare uses: ranks where they reach the level, t where they cannot."""
    null = signed_rank_null(n) if paired else mann_whitney_null(n, n)
    k = null.critical(alpha / 2)
    if k < 0:
        return t_detectable(n, alpha, paired=paired)
    if paired and k == 0:  # every block must point the same way: that has a closed form
        return float(special.ndtri(POWER ** (1 / n)))
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
    effect: float, deviation: float, alpha: float = ALPHA, *, paired: bool, start: int = FLOOR
) -> int | None:
    """The smallest n, from `start` on, whose smallest detectable effect is `effect` or less; None beyond 10,000."""
    if effect <= 0:
        return None
    shift = math.log1p(effect)

    def seen_by(n: int) -> bool:
        return detectable(n, alpha, paired=paired) * deviation <= shift

    low, high = max(FLOOR, start), MOST
    if seen_by(low):
        return low
    if not seen_by(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if seen_by(middle) else (middle, high)
    return high


def _unbiased(freedom: float) -> float:
    """A sample's standard deviation is a little small on average; this makes up for it (5 % at n = 6)."""
    return 1 + 1 / (4 * freedom)
