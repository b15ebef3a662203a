"""Sentences about devices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tare.analysis.fleet.model import Candidate, Spread
from tare.analysis.fleet.standings import Twins
from tare.analysis.sentences import percent

NAMED = 4


def odd_sentence(
    metric: str, what: str, name: str, twins: Sequence[str], away: float, why: Sequence[Candidate], margin: float
) -> str:
    """`orin-3 is unlike its twins (orin-1, orin-2): its step_s is 20.1 % more. It does not share with them: ...`."""
    more = "more" if away > 0 else "less"
    figure = (
        f"{what} on {metric} differs by {percent(abs(away))}"
        if what
        else f"its {metric} is {percent(abs(away))} {more}"
    )
    small = "" if abs(away) > margin else f", within the margin of {percent(margin)} all the same"
    start = f"{name} is unlike its twins ({_some(twins)}): {figure}{small}."
    if not why:
        return f"{start} Nothing that is recorded tells it from them: look at cooling, power supply and storage."
    told = "; ".join(candidate.told() for candidate in why)
    return f"{start} What it does not share with them, any of which may be why: {told}."


def pair_note(twins: Twins) -> str:
    """Two of a kind differ; nobody can say which of them is odd."""
    first, second = twins.names
    apart = abs(math.expm1(float(twins.values[0] - twins.values[1])))
    return (
        f"{first} and {second} are the only devices of the type {twins.type!r} and differ by {percent(apart)}: which "
        "of them is unlike the others takes a third to tell."
    )


def spread_without(names: Sequence[str], spreads: Sequence[Spread], rest: Sequence[Spread]) -> list[str]:
    """What the odd devices do to the spread between devices."""
    fewer = {each.where: _between(each) for each in rest}
    told = [
        f"{percent(whole)} becomes {percent(left)}{f' ({each.where})' if each.where else ''}"
        for each in spreads
        if (whole := _between(each)) is not None and (left := fewer.get(each.where)) is not None
    ]
    return [f"Without {_some(names)} the spread between devices of {told[0]}."] if told else []


def _between(found: Spread) -> float | None:
    """Of devices within their type."""
    return next((each.deviation.value for each in found.components if "devices" in each.level), None)


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
