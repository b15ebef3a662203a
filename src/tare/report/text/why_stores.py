"""Two stores as text: what is slower, where, and everything that was recorded differently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tare.analysis.sentences import effect_of, interval_of, verdict_phrase
from tare.analysis.why.stores import Pair
from tare.base.text import metric_name
from tare.report.columns import wrap
from tare.report.text.verdict import medians_of
from tare.report.text.why import moved_text, phase_lines, times_text

_MOST = 12  # differences of one kind


def pair_text(found: Pair, width: int) -> str:
    quick, slow = medians_of(found.total)
    head = (
        f"1. What is slower ({found.side}): {metric_name(found.total.metric)} {quick} in {found.quick}, {slow} in "
        f"{found.slow}: {times_text(found.total)} ({effect_of(found.total)} {interval_of(found.total)}), "
        f"{verdict_phrase(found.total)}. The two were not run in turn: what else changed meanwhile is part of it."
    )
    lines = wrap(head, width, indent="   ")
    lines += phase_lines(found.phases, width)
    lines += _listed("counters", [moved_text(each) for each in found.counters], width)
    software = [f"{each.key} {each.ours} ({each.theirs} in {found.quick})" for each in found.software]
    lines += _listed("software and environment", software, width)
    lines += _listed("device", _pairs(found.device, found.quick), width)
    lines += _listed("settings", _pairs(found.settings, found.quick), width)
    return "\n".join(lines)


def _pairs(differing: Mapping[str, tuple[Any, Any]], other: str) -> list[str]:
    return [f"{key} {ours} ({theirs} in {other})" for key, (ours, theirs) in differing.items()]


def _listed(what: str, entries: list[str], width: int) -> list[str]:
    if not entries:
        return [f"   {what}: no difference"]
    more = f"; {len(entries) - _MOST} more" if len(entries) > _MOST else ""
    return [f"   {line}" for line in wrap(f"{what}: {'; '.join(entries[:_MOST])}{more}", width - 3, indent="  ")]
