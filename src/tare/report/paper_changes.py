"""How a change is told: in percent, or in times where it is large or the paper has it so; never without an interval."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tare.analysis.claims.telling import LARGE, times
from tare.analysis.papers.rows import Ours
from tare.report.words import effect_text, interval_text

_HALVED = -0.5
_LESS_WORD = "less"
_IN_TIMES = re.compile(r"\dx( less| faster)?$")  # how a paper ends a change that it tells in times


class Change(NamedTuple):
    """A change and its interval, as shares."""

    share: float
    low: float
    high: float


@dataclass(frozen=True)
class _Way:
    """A change as a number of times, and the words around it."""

    times: Callable[[float], float]
    number: Callable[[float], str]
    words: str = "{}"

    def alone(self, share: float) -> str:
        return self.number(self.times(share))


def decrease(share: float) -> float:
    """A change as S1 tells it: (old - new) / new. A quarter of the old is 3."""
    return 1 / (1 + share) - 1


def _decrease_number(times: float) -> str:
    return f"{times:.3g}x" if abs(times) < 1000 else f"{times:,.0f}x"


_FACTOR = _Way(lambda share: 1 + share, times)
_LESS = _Way(lambda share: 1 / (1 + share), times, "{} less")
_DECREASE = _Way(decrease, _decrease_number, "decreases by {}")
_NO_DECREASE = _Way(lambda share: 1 + share, times, "rises to {}")


def known_change(ours: Ours) -> Change | None:
    """None where there is no change, or too few blocks for its interval."""
    if ours.change is None or ours.low is None or ours.high is None:
        return None
    return Change(ours.change, ours.low, ours.high)


def change_texts(change: Change, printed: str = "", *, as_decrease: bool = False) -> tuple[str, str]:
    """The change and its interval: `+1.6 %` and `[+0.4, +2.9]`, or `6.1x less` and `[5.2x, 7.0x]`.

    `printed` is the change as the paper has it: it decides, beside its size, in what it is told.
    """
    way = _way(change, printed, as_decrease)
    if way is None:
        beside = (change.low, change.high)
        return effect_text(change.share, beside), interval_text(*beside, [change.share])
    ends = sorted(map(way.times, (change.low, change.high)))
    return way.words.format(way.alone(change.share)), f"[{', '.join(map(way.number, ends))}]"


def range_text(shares: Sequence[float], change: Change | None, printed: str = "", *, as_decrease: bool = False) -> str:
    """The least and the greatest of other changes, told in the same way as this one."""
    way = _way(change, printed, as_decrease) if change is not None else None
    shown: Callable[[float], str] = way.alone if way is not None else effect_text
    return " to ".join(dict.fromkeys(shown(share) for share in (min(shares), max(shares))))


def _way(change: Change, printed: str, as_decrease: bool) -> _Way | None:
    """In times where the paper tells it so or it is large; None is in percent."""
    if change.low <= -1:
        return None  # nothing is left: there is no number of times
    if as_decrease:
        return _DECREASE if change.share < 0 else _NO_DECREASE
    in_times, says_less = _IN_TIMES.search(printed) is not None, _LESS_WORD in printed.split()
    halved = change.share < _HALVED
    if change.share < 0 and ((in_times and (says_less or halved)) or (says_less and halved)):
        return _LESS
    return _FACTOR if in_times or change.share >= LARGE else None


def excludes_zero(change: Change) -> bool:
    """Whether the interval, as it is shown, lies on one side of no change."""
    low, high = interval_text(change.low, change.high, [change.share])[1:-1].split(", ")
    return low.startswith("+") or high.startswith("-")
