"""Whether an emulated medium was felt: it is a cap on requests, and whoever asks for fewer reads as if without it.

The kernel counts requests in slices of a tenth of a second. What fits into a slice passes at once, so that a mini-batch
of four files does not feel a disk of 125 requests a second, however long the trial is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.records.model import Record

EMULATED, CACHE = "control.storage.emulate", "control.page_cache.state"
_WARM = "warm"
_SLICE_S = 0.1
_SURELY = 0.5  # a file takes a request or two: one for where it lies, one for what is in it
_STEPS = ("epoch0_step_mean_s", "epoch0_step_s")  # the epoch that reads the medium in every state of the page cache


@dataclass(frozen=True)
class _Asked:
    """What one trial asked of its medium, and what that lets pass, in files."""

    medium: str
    passes_a_second: float
    a_second: float
    at_once: float

    @property
    def is_felt(self) -> bool:
        slow = self.a_second >= _SURELY * self.passes_a_second
        return slow or self.at_once >= _SURELY * self.passes_a_second * _SLICE_S


def not_felt(records: Sequence[Record]) -> list[str]:
    """In words, each emulated medium that slowed none of these trials."""
    by_medium: dict[tuple[str, float], list[_Asked]] = {}
    for asked in filter(None, map(_asked, records)):
        by_medium.setdefault((asked.medium, asked.passes_a_second), []).append(asked)
    return [_words(*medium) for medium, several in by_medium.items() if not any(each.is_felt for each in several)]


def _asked(record: Record) -> _Asked | None:
    """None where there is no emulated medium, where memory held the data, or where the record does not tell."""
    medium, batch = record.settings.get(EMULATED), record.settings.get("workload.batch")
    step_s = next((record.metrics[name] for name in _STEPS if record.metrics.get(name)), None)
    passes = _limit(record)
    if medium is None or batch is None or step_s is None or passes is None or record.settings.get(CACHE) == _WARM:
        return None
    workers = record.settings.get("workload.workers") or 0
    return _Asked(str(medium), passes, batch / step_s, batch * max(1, workers))


def _limit(record: Record) -> float | None:
    """Requests a second, as the trial had them."""
    settled = record.facts.get("settled") or {}
    limits = (settled.get("storage") or {}).get("limits")
    found = limits.get("read_iops") if isinstance(limits, Mapping) else None
    return float(found) if found else None


def _words(medium: str, passes: float) -> str:
    of = f"the {passes:g} files a second and {int(passes * _SLICE_S)} at once"
    return f"the emulated {medium} was asked for less than half of {of} that it lets pass: it slowed nothing"
