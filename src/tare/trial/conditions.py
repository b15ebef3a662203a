"""Heat around a trial: it starts as warm as the study's first one did, and is ended before the device harms itself."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tare.base.errors import TrialError
from tare.base.host import Host
from tare.drivers.kernel_files import Sensor, sensors_by_word, temperatures_c, within
from tare.figures.evidence import THRESHOLDS
from tare.parts.probes.thermal import Temperature
from tare.parts.protocols import Json, Probe
from tare.records.model import Record
from tare.trial.tenants import Watched
from tare.trial.upkeep import ticks

T = TypeVar("T")

LOOK_EVERY_S = 1.0
_ANSWER_S = 5.0


def cooled(host: Host, probes: Sequence[Probe], records: Iterable[Record]) -> dict[str, Any]:
    """Wait until no zone is warmer than at the study's start; how warm it is then, for the record (M17)."""
    probe = temperature_probe(probes)
    if probe is None:
        return {}
    start_ns = host.clock.now_ns()
    sensors = _answered(lambda: sensors_by_word(host))
    now_c = _answered(lambda: temperatures_c(host, sensors))
    reference_c = _reference_c(records) or now_c
    deadline_ns = start_ns + round(probe.wait * 1e9)

    def is_hot() -> bool:
        both = now_c.keys() & reference_c.keys()
        return any(now_c[zone] - reference_c[zone] > THRESHOLDS.gate_c for zone in both)

    while is_hot() and host.clock.now_ns() < deadline_ns:
        host.clock.sleep_until(min(deadline_ns, host.clock.now_ns() + round(LOOK_EVERY_S * 1e9)))
        now_c = _answered(lambda: temperatures_c(host, sensors))
    waited_s = (host.clock.now_ns() - start_ns) / 1e9
    return {"warmth": {"reference_c": reference_c, "start_c": now_c, "waited_s": waited_s}} if now_c else {}


def temperature_probe(probes: Iterable[Probe]) -> Temperature | None:
    """Heat is looked at in studies that have the probe `temperature`."""
    return next((probe for probe in probes if isinstance(probe, Temperature)), None)


def _answered(ask: Callable[[], dict[str, T]]) -> dict[str, T]:
    """What is found out within the limit; nothing, where a sensor hangs."""
    try:
        return within(_ANSWER_S, ask)
    except TimeoutError:
        return {}


def _reference_c(records: Iterable[Record]) -> dict[str, float] | None:
    """How warm the first trial of the study found the device."""
    known = [record for record in records if record.facts.get("warmth", {}).get("reference_c")]
    first = min(known, key=lambda record: record.started_utc, default=None)
    found: dict[str, float] | None = None if first is None else first.facts["warmth"]["reference_c"]
    return found


@contextmanager
def guarded_from_heat(host: Host, probes: Sequence[Probe], facts: dict[str, Any]) -> Iterator[Watched | None]:
    """What watches the heat while tenants run, in studies that ask for it; who was too hot goes into the facts."""
    probe = temperature_probe(probes)
    if probe is None:
        yield None
        return
    guard = HeatGuard(host, probe)
    try:
        yield guard.watching
    finally:
        if guard.stopped_by is not None:
            facts.setdefault("warmth", {})["stopped_by"] = guard.stopped_by


class HeatGuard:
    """Looks at the temperatures while a trial runs, and ends it when one is over its limit (faults.md C17)."""

    def __init__(self, host: Host, probe: Temperature) -> None:
        self._host = host
        self._limit_c = probe.limit_c
        self._over = threading.Event()
        self.stopped_by: dict[str, Any] | None = None  # the zone that was too hot

    @contextmanager
    def watching(self, stop: Callable[[], None]) -> Iterator[None]:
        """While this lasts, `stop` is called once if the device gets too hot."""
        self._over.clear()
        thread = threading.Thread(target=self._look, args=(stop,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join(LOOK_EVERY_S)  # a sensor that hangs does not keep the trial

    def _look(self, stop: Callable[[], None]) -> None:
        found = sensors_by_word(self._host)
        limits_c = {word: limit for word, sensor in found.items() if (limit := self._limit(sensor)) is not None}
        sensors = {word: found[word] for word in limits_c}
        while sensors and not self._over.wait(LOOK_EVERY_S):
            for word, degrees in temperatures_c(self._host, sensors).items():
                if degrees > limits_c[word]:
                    self.stopped_by = {"name": word, "degrees_c": degrees, "limit_c": limits_c[word]}
                    stop()
                    return

    def _limit(self, sensor: Sensor) -> float | None:
        if self._limit_c is not None:
            return self._limit_c
        return None if sensor.critical_c is None else sensor.critical_c - THRESHOLDS.heat_margin_c


LEAST_S = 0.3  # between two glances
_LEAST_TICKS = 10  # less than that is rounding
_NAMED = 3
_PROC = Path("/proc")


class Glance(NamedTuple):
    """The kernel's counts of CPU time, in ticks: of the device, of us, and of each process."""

    capacity: int
    busy: int
    ours: int
    processes: dict[tuple[int, str], int]  # pid and name


def glance(proc: Path = _PROC) -> Glance:
    """What the counts are now; ours are this process's and its children's, once they have ended."""
    first, _, _ = (proc / "stat").read_text().partition("\n")
    user, nice, system, idle, iowait, irq, softirq, steal = map(int, first.split()[1:9])
    busy = user + nice + system + irq + softirq
    processes = {}
    for folder in proc.glob("[0-9]*"):
        if (seen := ticks(folder)) is not None:
            name, own, _ = seen
            processes[int(folder.name), name] = own
    me = ticks(proc / str(os.getpid()))
    return Glance(busy + idle + iowait + steal, busy, me[1] + me[2] if me else 0, processes)


def advice(before: Glance, after: Glance, *, strict: bool = False) -> str | None:
    """A sentence where others use so much that trials are marked; None where all is quiet.

    `strict`: whether the study refuses disturbed trials.
    """
    capacity = after.capacity - before.capacity
    foreign = (after.busy - before.busy) - (after.ours - before.ours)
    share = foreign / capacity if capacity > 0 else 0.0
    if foreign < _LEAST_TICKS or share <= THRESHOLDS.foreign_suspect_share:
        return None
    if strict and share > THRESHOLDS.foreign_invalid_share:
        fate = f"above {THRESHOLDS.foreign_invalid_share:.0%} a trial of this study is invalid (`strict`)"
    else:
        fate = "the sides of a block share it, so the intervals get wider and the trials are marked"
    return (
        f"other processes use {share:.0%} of this device's CPU time at this moment{_who(before, after)}: {fate}.\n"
        "Stop them while it runs if you can."
    )


def _who(before: Glance, after: Glance) -> str:
    """The busiest of them by name, those of one name together."""
    used: dict[str, int] = {}
    for (pid, name), now in after.processes.items():
        if pid != os.getpid():
            used[name] = used.get(name, 0) + now - before.processes.get((pid, name), now)
    busiest = sorted((name for name in used if used[name] > 0), key=lambda name: -used[name])[:_NAMED]
    return f" ({', '.join(busiest)})" if busiest else ""


_RAN = ("ok", "suspect", "invalid")  # an image that failed may have been mended since


def refuse_another(settings: Mapping[str, Json], place: Mapping[str, Json], earlier: Iterable[Record]) -> None:
    """Raise if this very platform ran another image in an earlier trial of the store."""
    now = place.get("image_id")
    if place.get("root") != "image" or now is None:
        return
    for record in earlier:
        before = (record.facts.get("place") or {}).get("image_id")
        if record.state in _RAN and _platform(record.settings) == _platform(settings) and before not in (None, now):
            raise TrialError(
                f"the image {settings.get('platform.image', '')} is another one than in earlier trials of this store: "
                f"{_short(before)} then, {_short(now)} now. Two images are two levels.\n"
                "Name each by its id (`image: sha256:...`), or begin another store with -o."
            )


def _platform(settings: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in settings.items() if name.partition(".")[0] == "platform"}


def _short(image: Json) -> str:
    return str(image)[:19]
