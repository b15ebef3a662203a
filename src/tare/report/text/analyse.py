"""What `tare show STORE pipeline` shows: each pipeline by number of workers, its limit, and what hides the stall."""

from __future__ import annotations

from tare.analysis.fleet.results import Effect, Fleet, Population, Quantity, Spread, Standing
from tare.analysis.model import Estimate
from tare.base.columns import wrap
from tare.base.text import (
    count_text,
    effect_text,
    interval_text,
    metric_name,
    safe_text,
    share_text,
)
from tare.report.columns import sentences, table

# What is said about the devices of a fleet, as text: on each, over all, how they scatter, and who is unlike.

EFFECT_HEADS = ("device", "type", "effect", "95 % interval", "blocks")
SPREAD_HEADS = ("varies", "groups", "deviation", "95 % interval", "of the variance")
STANDING_HEADS = ("device", "type", "trials", "from the others", "95 % interval", "its own", "")
MOST_SPREADS = 4  # configurations that a page holds; the rest is in --json
WORDS = {"equivalent": "equivalent", "slower": "slower", "faster": "faster", "cannot_tell": "cannot tell"}


def fleet_text(found: Fleet, width: int = 80) -> str:
    """The whole answer for a terminal of `width` columns."""
    types = ", ".join(f"{len(devices)} {safe_text(name)}" for name, devices in found.types.items())
    lines = wrap(f"{safe_text(found.study)}: {count_text(len(found.devices), 'device')} ({types})", width)
    for quantity in found.quantities:
        lines += ["", *_quantity(quantity, width)]
    return "\n".join([*lines, *sentences((f"note: {note}" for note in found.notes), width)])


def _quantity(found: Quantity, width: int) -> list[str]:
    name = metric_name(found.metric)
    lines: list[str] = []
    for effect in found.effects:
        lines += [*wrap(f"{name}: {effect_title(effect)}", width), table(effect_rows(effect), EFFECT_HEADS, width)]
        lines += [*sentences((population_sentence(each) for each in effect.populations), width), ""]
    for spread in found.spreads[:MOST_SPREADS]:
        lines += [*wrap(f"{name}: {spread_title(spread)}", width), table(spread_rows(spread), SPREAD_HEADS, width), ""]
    lines += [*wrap(f"{name}: each device among identical devices", width)]
    lines.append(table([standing_row(each) for each in found.standings], STANDING_HEADS, width))
    return [*lines, *sentences(fleet_sentences(found), width)]


def fleet_sentences(found: Quantity) -> list[str]:
    """Who is an outlier among identical devices, what would have been seen, and notes."""
    notes = [f"note: {note}" for note in fleet_notes(found)]
    return [*(each.sentence for each in found.odd), *could_see(found), *notes]


def could_see(found: Quantity) -> list[str]:
    """Of each type without such a device: what would have been seen."""
    told = []
    for kind, distance in found.could_see.items():
        if not any(each.type == kind and not each.what for each in found.odd):
            seen = f"{share_text(distance)} would have been seen"
            told.append(f"No device of the type {kind!r} is an outlier; {seen}.")
    return told


def fleet_notes(found: Quantity) -> list[str]:
    left = len(found.spreads) - MOST_SPREADS
    more = [f"the spread of {count_text(left, 'more configuration')} is in --json."] if left > 0 else []
    return [*more, *found.notes]


def effect_title(effect: Effect) -> str:
    where = f" ({safe_text(effect.where)})" if effect.where else ""
    return f"the effect of {safe_text(effect.level)} against {safe_text(effect.against)}{where}"


def effect_rows(effect: Effect) -> list[tuple[str, ...]]:
    """One a device, then one a population."""
    rows: list[tuple[str, ...]] = [
        (safe_text(each.device), safe_text(each.type), *_figures(each.effect), f"{each.effect.n:,}")
        for each in effect.devices
    ]
    return rows + [(population_name(each), "", *_figures(each.mean), "") for each in effect.populations]


def population_name(found: Population) -> str:
    return f"all {safe_text(found.of)}" if found.of else "all devices"


def population_sentence(found: Population) -> str:
    """`over 6 devices: slower; devices differ by 0.8 % ...; on the next one [-0.4, +4.4] %`."""
    tau = found.tau
    between = f"{share_text(tau.value)}{_ends(tau)}"
    ahead = interval_text(found.next_low, found.next_high, [found.mean.value])
    return (
        f"{population_name(found)} ({found.mean.n}): {WORDS[found.verdict]}; the effect differs between devices by "
        f"{between}, and on one more device it is expected in {ahead} %."
    )


def spread_title(spread: Spread) -> str:
    where = f" of {safe_text(spread.where)}" if spread.where else ""
    return f"spread{where}, {count_text(spread.trials, 'trial')}"


def spread_rows(spread: Spread) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for each in spread.components:
        share, deviation = each.share, each.deviation
        told = _whole(share.value)
        if share.low is not None and share.high is not None:
            told += f" [{_whole(share.low)}, {_whole(share.high)}]"
        ends = _ends(deviation).strip() or "too few"
        rows.append((each.level, f"{deviation.n:,}", share_text(deviation.value), ends, told))
    return rows


def standing_row(found: Standing) -> tuple[str, ...]:
    """What is its own is drawn to the mean of its type: the random effect."""
    away = "" if found.deviation is None else effect_text(found.deviation)
    ends = "" if found.low is None or found.high is None else interval_text(found.low, found.high, [found.deviation])
    own = "" if found.random_effect is None else effect_text(found.random_effect)
    word = "unlike" if found.unlike else ""
    return safe_text(found.device), safe_text(found.type), f"{found.trials:,}", away, ends, own, word


def _figures(found: Estimate) -> tuple[str, str]:
    if found.low is None or found.high is None:
        return effect_text(found.value), "too few"
    ends = [found.low, found.high]
    return effect_text(found.value, ends), interval_text(found.low, found.high, [found.value])


def _ends(found: Estimate) -> str:
    if found.low is None or found.high is None:
        return ""
    return f" [{share_text(found.low)}, {share_text(found.high)}]"


def _whole(share: float) -> str:
    return f"{100 * share:.0f} %"
