"""What sharing the device cost, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tare.analysis.model import Comparison
from tare.analysis.tenants import Sharing
from tare.report.columns import table, wrap
from tare.report.verdicts import effect_of, interval_of, medians_of, verdict_phrase
from tare.report.words import duration_text

_HEADS = ("tenants", "who", "alone", "shared", "slowdown", "95 % interval", "verdict")


def sharing_text(found: Sequence[Sharing], width: int) -> str:
    """One line a tenant, then how fairly the device was shared."""
    rows = [_row(one, each) for one in found for each in one.slowdowns]
    lines = [table(rows, _HEADS, width)] if rows else []
    for sentence in (sentence for one in found for sentence in _sentences(one)):
        lines += wrap(sentence, width, indent="  ")
    return "\n".join(lines)


def _row(one: Sharing, found: Comparison) -> tuple[str, ...]:
    alone, shared = medians_of(found)
    return _level(one), found.level, alone, shared, effect_of(found), interval_of(found), verdict_phrase(found)


def _level(one: Sharing) -> str:
    return f"{one.tenants} ({one.where})" if one.where else one.tenants


def _sentences(one: Sharing) -> Iterator[str]:
    if not one.slowdowns:
        yield f"{_level(one)}: there is no usable trial of one tenant alone to compare with."
    if one.fairness is not None:
        yield f"{_level(one)}: fairness {one.fairness.value:.3f} (Jain's index of the speeds; 1 is equal shares)."
    if one.overlap_s is not None:
        yield f"{_level(one)}: all worked at the same time for {duration_text(one.overlap_s.value)} of a trial."
