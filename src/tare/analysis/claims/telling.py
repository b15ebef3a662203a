"""The figure of a claim in words: a change in percent, in times where it is large; a share; the points of a share."""

from __future__ import annotations

from collections.abc import Mapping

from tare.analysis.claims.model import FAILS, HOLDS, UNDECIDED, Kind, Word

COUNTED: Mapping[Word, tuple[str, str]] = {  # how one is counted, and how several are
    HOLDS: ("holds", "hold"), FAILS: ("does not hold", "do not hold"), UNDECIDED: ("undecided", "undecided"),
}  # fmt: skip
LARGE = 1.0  # from +100 % on, a factor reads better than percent
LEAST_SHARE, BELOW_LEAST = 0.001, "below 0.1 %"  # a share that is less is not told in digits


def figure_words(kind: Kind, effect: float, low: float, high: float) -> str:
    """`+1.6 % [+0.4, +2.9]`, `94x [48x, 185x]`, `31.0 % [28.4, 33.0]`, `+30.0 points [+22.1, +38.0]`."""
    if kind == "change" and effect >= LARGE:
        return f"{times(1 + effect)} [{times(1 + low)}, {times(1 + high)}]"
    if kind == "share" and is_tiny(high):
        return BELOW_LEAST
    number = _share if kind == "share" else _signed
    return f"{number(effect)} {'points' if kind == 'points' else '%'} [{number(low)}, {number(high)}]"


def is_tiny(share: float) -> bool:
    """Whether a share is more than nothing, and less than is told."""
    return 0 < share < LEAST_SHARE


def times(factor: float) -> str:
    """`185x`, `3.6x`, `0.97x`: near one, which is no change, with one digit more."""
    decimals = 0 if factor >= 100 else 1 if factor >= 2 else 2
    return f"{factor:,.{decimals}f}x"


def _share(share: float) -> str:
    return f"{100 * share:.1f}"


def _signed(share: float) -> str:
    """`+1.6`; what is shown as nothing has no sign."""
    shown = f"{100 * share:+.1f}"
    return shown if float(shown) else "0.0"
