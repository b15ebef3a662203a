"""What a device does not share with its twins: candidates for why it is unlike them, and no more than that."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from tare.analysis.fleet.results import Candidate
from tare.analysis.labels import text
from tare.analysis.parity import flat, rule_for
from tare.records.model import Record, TrialRow, collected, is_usable

MOST = 5  # candidates that a sentence can hold
FEWEST_C, FEWEST_SHARE = 5.0, 0.05  # how far outside its twins' range a reading must lie
STEADY = 2  # values of one fact on one device: what has more changes by itself
LOOKED_AT = 3  # trials of a device whose series are asked
_PASSING = re.compile(r"(^|[._])(boot_id|name|id|serial|hostname|address|title)$")  # differ from device to device
_READINGS = re.compile(r"temperature|_mhz$|_hz$|throttle|cooling|alarm", re.IGNORECASE)
_SLOWED = frozenset({"heat.throttled", "heat.stopped", "heat.hot-start", "heat.alarm", "clock.below", "clock.above",
                     "clock.slept", "gpu.clock", "gpu.slowed", "gpu.power-limit", "cpu.quota", "memory.swapped",
                     "control.not-held"})  # fmt: skip
_SECTIONS = ("device", "controls", "settled", "place")
# Most telling first: what is known to change speed, then what the kernel was told, then the rest.
_ORDER = (
    "throttl",
    "temperature",
    "governor",
    "power_mode",
    "hz",
    "kernel",
    "cpu",
    "cores",
    "storage",
    "torch",
    "cuda",
)

Channels = Callable[[TrialRow], Sequence[Mapping[str, Any]]]  # of a trial: name, quantiles


def candidates(device: str, twins: Sequence[str], seen: Sequence[TrialRow], channels: Channels) -> list[Candidate]:
    """The likeliest first: how often it was throttled, how warm and how fast it ran, what it is and what it runs."""
    mine = [each for each in seen if each.device == device]
    theirs = [[each for each in seen if each.device == name] for name in twins]
    found = [*_troubles(mine, theirs), *_readings(mine, theirs, channels), *_facts(mine, theirs)]
    once = list({each.what: each for each in reversed(found)}.values())[::-1]
    return sorted(once, key=lambda each: _rank(each.what))[:MOST]


def _rank(what: str) -> int:
    return next((place for place, word in enumerate(_ORDER) if word in what.lower()), len(_ORDER))


def _troubles(mine: Sequence[Record], theirs: Sequence[Sequence[Record]]) -> Iterable[Candidate]:
    """Trials that were doubted or refused for heat, clocks or memory; its twins had none, or far fewer."""
    ours, others = _troubled(mine), [_troubled(records) for records in theirs]
    usual = median(share for share, _ in others) if others else 0.0
    if ours[0] > max(0.1, 3 * usual):
        count = round(ours[0] * len(mine))
        yield Candidate(
            "throttled or doubted in", f"{count} of {len(mine)} trials: {ours[1]}", f"{usual:.0%} of theirs"
        )


def _troubled(records: Sequence[Record]) -> tuple[float, str]:
    said = [next((reason for reason in record.reasons if reason.code in _SLOWED), None) for record in records]
    found = [str(reason) for reason in said if reason is not None]
    return (len(found) / len(records) if records else 0.0), (found[0].rstrip(".") if found else "")


def _readings(
    mine: Sequence[TrialRow], theirs: Sequence[Sequence[TrialRow]], channels: Channels
) -> Iterable[Candidate]:
    """Temperatures, clocks and throttle counts that lie outside the range of its twins."""
    ours = _typical(mine, channels)
    others = [_typical(trials, channels) for trials in theirs]
    for name, value in ours.items():
        known = [found[name] for found in others if name in found]
        if len(known) < 2:
            continue
        far = FEWEST_C if name.endswith("_c") else FEWEST_SHARE * max(abs(end) for end in (*known, value))
        if value > max(known) + far or value < min(known) - far:
            yield Candidate(_spoken(name), f"{value:.4g}", f"{min(known):.4g} to {max(known):.4g}")


def _typical(trials: Sequence[TrialRow], channels: Channels) -> dict[str, float]:
    """Channel -> the median over a few trials of its median in each."""
    values: list[tuple[str, float]] = []
    for each in [trial for trial in trials if is_usable(trial)][:LOOKED_AT]:
        for channel in channels(each):
            name, quantiles = str(channel["name"]), channel.get("quantiles")
            if _READINGS.search(name) and quantiles:
                values.append((name, float(quantiles[len(quantiles) // 2])))
        for zone, degrees in ((each.facts.get("warmth") or {}).get("start_c") or {}).items():
            values.append((f"temperature.{zone}_c", float(degrees)))
    return {name: median(found) for name, found in collected(values).items()}


def _facts(mine: Sequence[Record], theirs: Sequence[Sequence[Record]]) -> Iterable[Candidate]:
    """Facts that most twins share, and this device does not."""
    ours, others = _known(mine), [_known(records) for records in theirs]
    for key in dict.fromkeys((*ours, *(key for found in others for key in found))):
        counts = Counter(found.get(key, "none") for found in others)
        usual, times = counts.most_common(1)[0] if counts else ("none", 0)
        if 2 * times > len(others) and ours.get(key, "none") != usual:
            yield Candidate(key, ours.get(key, "none"), usual)


def _known(records: Sequence[Record]) -> dict[str, str]:
    """What is known of a device and of its software; what changes from trial to trial is left out."""
    values: list[tuple[str, str]] = []
    for record in records:
        facts = {"tare": record.tare_version} if record.tare_version else {}
        for section in _SECTIONS:
            facts |= flat(record.facts.get(section) or {}, "" if section == "device" else f"{section}.")
        inside = flat(record.facts.get("inside") or {})
        facts |= {key: value for key, value in inside.items() if key not in facts and rule_for(key).matters}
        values += ((key, text(value)) for key, value in facts.items() if not _PASSING.search(key))
    known = {key: dict.fromkeys(found) for key, found in collected(values).items()}
    return {key: " | ".join(found) for key, found in known.items() if len(found) <= STEADY}


def _spoken(name: str) -> str:
    """`temperature.cpu_c` as `temperature cpu (°C)`."""
    base, _, unit = name.rpartition("_")
    units = {"c": "°C", "mhz": "MHz", "hz": "Hz", "s": "s"}
    return f"{base.replace('.', ' ')} ({units[unit]})" if unit in units else name.replace(".", " ")
