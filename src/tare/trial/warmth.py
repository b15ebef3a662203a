"""Heat around a trial: it starts as warm as the study's first one did, and is ended before the device harms itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from tare.host import Host
from tare.parts.probes.temperature import Sensor, Temperature, sensors_by_word, temperatures_c
from tare.parts.protocols import Probe
from tare.parts.sensor_folders import within
from tare.records.model import Record
from tare.trial.tenants import Watched
from tare.trial.thresholds import THRESHOLDS

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
    while _is_hot(now_c, reference_c) and host.clock.now_ns() < deadline_ns:
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


def _is_hot(now_c: dict[str, float], reference_c: dict[str, float]) -> bool:
    return any(now_c[zone] - reference_c[zone] > THRESHOLDS.gate_c for zone in now_c.keys() & reference_c.keys())


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
