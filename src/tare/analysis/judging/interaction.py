"""Does a level cost more in one cell than in another? The ratio of its two effects, paired by block.

For every other factor that varies: in each block, the effect of the level at the factor's first value and at another
one (the mean of its logarithms over what else varies, as far as that was run at both), and those two effects against
each other. All are one family.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from tare.analysis.compare import Contest, contests, judge
from tare.analysis.labels import make_labels, signature, text
from tare.analysis.model import Comparison, Interaction, Measurement
from tare.analysis.selection import Selection, block_of
from tare.records.model import Record
from tare.records.trials import TYPE

Key = tuple[str | None, ...]


def interactions(selected: Selection) -> tuple[Interaction, ...]:
    """Of every level against the baseline, for each factor beside; empty where only one cell was run."""
    if selected.against is None or not selected.label.rest or selected.label.by == TYPE:
        return ()
    first = [record for record in selected.used if not record.twin and block_of(record) is not None]
    if not first:
        return ()
    places: list[tuple[str, str]] = []  # the factor and the level of each contest
    family: list[Contest] = []
    floor = max((each.floor for each in selected.family() if each.floor is not None), default=None)
    for factor in selected.label.rest:
        names = _names(first, factor)
        for level in (level for level in selected.levels if level != selected.against):
            base, *others = _effects(selected, first, factor, names, level)
            for other in others:
                if held := _crossed(names, base, other):
                    made = contests(held, names[base.value], levels=[names[base.value], names[other.value]])
                    family += [replace(each, floor=floor, unit=selected.unit) for each in made]
                    places += [(factor, level)] * len(made)
    asked = selected.request
    judged = judge(
        family, margin=asked.margin, metric=selected.metric, alpha=asked.alpha, resamples=0, rises=asked.rises
    )
    return tuple(
        Interaction(factor, level, selected.against, each.level, each.against, each, _gains(contest, each))
        for (factor, level), contest, each in zip(places, family, judged, strict=True)
    )


def _gains(contest: Contest, found: Comparison) -> bool:
    """Whether the level is better than the baseline by more than the margin in both cells."""
    middles = (median(each.value for each in side) for side in (contest.ours, contest.theirs) if side)
    harms = [math.log(middle) * (-1 if found.direction.rises else 1) for middle in middles]
    return bool(harms) and max(harms) < -math.log1p(found.margin)


def _names(records: Sequence[Record], factor: str) -> dict[Key, str]:
    """What each value of the factor is called, numbers by their size: the first is what the others are held against."""
    values = {signature(record.settings, (factor,)): {factor: record.settings.get(factor)} for record in records}
    words = make_labels(list(values.values()), (factor,))
    return {
        key: _name(str(words.words(values[key])), values[key].get(factor), factor) for key in sorted(values, key=_size)
    }


def _name(words: str, value: object, factor: str) -> str:
    """In words; also of a value that labels leave out, since the others have a name."""
    if factor == "platform" and words == "bare":
        return "bare metal"
    return words or (f"no {factor}" if value is None else f"{factor} {text(value)}")


def _size(key: Key) -> tuple[float, str]:
    try:
        return float(str(key[0])), ""
    except ValueError:
        return math.inf, str(key[0])


@dataclass(frozen=True)
class _Effects:
    """The logarithms of the level's ratios to the baseline at one value of the factor: by block, then by what else
    varies."""

    value: Key
    logs: Mapping[str | None, Mapping[Key, float]]


def _effects(
    selected: Selection, records: Sequence[Record], factor: str, names: Mapping[Key, str], level: str
) -> list[_Effects]:
    """One for each value of the factor, in the order of their names."""
    label, base = selected.label, str(selected.against)
    rest = tuple(name for name in label.rest if name != factor)
    sides: dict[tuple[Key, str | None, Key], dict[str, list[float]]] = {}
    for record in records:
        if (whose := label.level(record)) in (level, base):
            key = (signature(record.settings, (factor,)), block_of(record), signature(record.settings, rest))
            sides.setdefault(key, {}).setdefault(whose, []).append(record.metrics[selected.metric])
    logs: dict[Key, dict[str | None, dict[Key, float]]] = {value: {} for value in names}
    for (value, block, other), found in sides.items():
        if len(found) == 2:
            ratio = math.log(median(found[level])) - math.log(median(found[base]))
            logs[value].setdefault(block, {})[other] = ratio
    return [_Effects(value, logs[value]) for value in names]


def _crossed(names: Mapping[Key, str], base: _Effects, other: _Effects) -> list[Measurement]:
    """One ratio for each block and value, over what else was run at both values in that block."""
    made = []
    for block in base.logs:
        both = base.logs[block].keys() & other.logs.get(block, {}).keys()
        for each in (base, other) if both else ():
            made.append(Measurement(names[each.value], math.exp(fmean(each.logs[block][key] for key in both)), block))
    return made
