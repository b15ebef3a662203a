"""One source of power over one span of time: its joules by every way that there is, and why they may not be claimed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tare.trial.energy_sources import Source, sources
from tare.trial.energy_window import Pace, Span
from tare.trial.power_series import Amount, Times, Values, counted, integral
from tare.trial.sensor_step import sensor_step
from tare.trial.thresholds import THRESHOLDS

Series: TypeAlias = Mapping[str, tuple[Times, Values]]


@dataclass(frozen=True)
class Measured:
    """One source over one window: by counter, by integral, or by both."""

    source: Source
    by_counter: Amount | None
    by_integral: Amount | None
    counter_window_s: float | None = None  # over how long the sensor averages
    integral_window_s: float | None = None
    slept_s: float = 0.0
    sensor: str | None = None  # M29: what speaks against the sensor itself
    dropped_s: float = 0.0  # E7: of the window, the time whose energy the counter lacks, since it was reset in it

    @property
    def way(self) -> str:
        """The counter where it has no gap of its own, since it misses nothing between two samples."""
        if self.by_counter is None:
            return "integral"
        lacks = bool(self.by_counter.problems) or self.dropped_s > 0
        return "integral" if lacks and self.by_integral is not None else "counter"

    @property
    def amount(self) -> Amount | None:
        return self.by_counter if self.way == "counter" else self.by_integral

    @property
    def sensor_window_s(self) -> float | None:
        return self.counter_window_s if self.way == "counter" else self.integral_window_s

    @property
    def disagreement(self) -> float | None:
        """How far the counter is from the integral, as a share of it; None where one of them has gaps.

        A field that lags behind, since it averages over a second, says nothing about a window of a few seconds.
        """
        both = [one for one in (self.by_counter, self.by_integral) if one is not None and not one.problems]
        if len(both) < 2 or both[1].joules <= 0:
            return None
        if both[1].window_s < THRESHOLDS.energy_windows * (self.integral_window_s or 0.0):
            return None
        return both[0].joules / both[1].joules - 1

    def suspicions(self) -> list[str]:
        """What speaks against the sensor (M28, M29), in sentences: the trial is suspect, and its times are kept."""
        found = [] if self.sensor is None else [f"the power sensor: {self.sensor}"]
        if self.disagreement is not None and abs(self.disagreement) > THRESHOLDS.energy_disagreement_share:
            found.append(f"the counter and the sum of power differ by {abs(self.disagreement):.1%}.")
        return [f"{self.source.name}: {sentence}" for sentence in found]

    def doubts(self) -> list[str]:
        """Why this energy may not be claimed, in sentences; empty where it may."""
        found = self.amount
        if found is None:
            return [f"{self.source.name}: fewer than two samples of power."]
        doubts = [*found.problems, *self._too_short(found)]
        if self.way == "counter" and self.dropped_s > 0:
            doubts.append(f"partial: the counter fell back or jumped, and lacks the energy of {self.dropped_s:.1f} s.")
        if self.slept_s > THRESHOLDS.sleep_s:
            doubts.append(f"the machine slept {self.slept_s:.0f} s, and no energy is known for that time.")
        return [*(f"{self.source.name}: {doubt}" for doubt in doubts), *self.suspicions()]

    def _too_short(self, found: Amount) -> list[str]:
        """M14 and M34: an integral needs 60 samples of power; a counter misses nothing between two readings of it.

        Where a reading takes longer than the sensor's own window, it is the reading that blurs the edges.
        """
        doubts = []
        samples, window_s = THRESHOLDS.energy_samples, self.sensor_window_s or 0.0
        if self.way == "counter":
            window_s = max(window_s, found.period_s)
        elif found.samples < samples:
            doubts.append(f"too short: {found.samples} samples in {found.window_s:.1f} s, and it takes {samples}.")
        if found.window_s < (least_s := THRESHOLDS.energy_windows * window_s):
            what = "a counter that is read every" if self.way == "counter" else "a sensor that averages over"
            doubts.append(f"too short: {found.window_s:.1f} s, and {what} {window_s:.2g} s takes {least_s:.2g} s.")
        return doubts

    def as_json(self, abouts: Mapping[str, str]) -> dict[str, Any]:
        """What is known of it, for the record (validity.md M33)."""
        found = self.amount
        said: dict[str, Any] = {
            "scope": self.source.scope,
            "channels": list(self.source.channels),
            "field": "; ".join(abouts[channel] for channel in self.source.channels if abouts.get(channel)),
            "by": self.way,
            "sensor_window_s": self.sensor_window_s,
            "counter_j": None if self.by_counter is None else self.by_counter.joules,
            "integral_j": None if self.by_integral is None else self.by_integral.joules,
            "disagreement_share": self.disagreement,
            "doubts": self.doubts(),
        }
        if found is not None:
            said |= {
                "samples": found.samples,
                "period_s": found.period_s,
                "covered_share": found.covered_share,
                "longest_gap_s": found.longest_gap_s,
                "power_w": found.power_w,
            }
        return {key: value for key, value in said.items() if value not in (None, "")}


def measured_energy(
    series: Series, span: Span, abouts: Mapping[str, str], pace: Pace | None = None, *, slept_s: float = 0.0
) -> dict[str, Measured]:
    """Every source of power in the series, over one span; `pace` is that of the work in it, where it is known."""
    return {
        source.name: Measured(
            source,
            counted(*series[source.joules], span.window) if source.joules else None,
            integral(*series[source.watts], span.window) if source.watts else None,
            source.sensor_window_s(source.joules, abouts),
            source.sensor_window_s(source.watts, abouts),
            slept_s,
            None if pace is None else sensor_step(*_power(series, source), span.window, pace.ends_ns, pace.step_s),
            _dropped_s(series.get(f"{source.of}.dropped_s"), span),
        )
        for source in sources(series)
    }


def _dropped_s(dropped: tuple[Times, Values] | None, span: Span) -> float:
    """How much of the span a probe says that its counters lack; a drop is seen at the reading that ends it."""
    if dropped is None or len(dropped[0]) < 2:
        return 0.0
    t_ns, seconds = dropped
    first = max(0, int(np.searchsorted(t_ns, span.begin_ns, side="right")) - 1)
    last = min(len(t_ns) - 1, int(np.searchsorted(t_ns, span.end_ns, side="left")))
    return float(seconds[last] - seconds[first])


def _power(series: Series, source: Source) -> tuple[Times, Values]:
    """The watts of a source, or what its counter grew by between two samples."""
    if source.watts is not None:
        return series[source.watts]
    t_ns, joules = series[str(source.joules)]
    times, places = np.unique(t_ns, return_index=True)
    return times[1:], np.diff(joules[places]) / (np.diff(times) / 1e9)
