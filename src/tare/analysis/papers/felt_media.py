"""Whether an emulated medium may have been felt: it is a cap, and whoever asks for less reads as if without it.

The kernel counts requests and bytes in slices of a tenth of a second. What fits into a slice passes at once, so that a
mini-batch of four items hardly feels a disk of 125 requests a second, however long the trial is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.analysis.storage import CACHE, EMULATED, NEVER, reads
from tare.records.model import Record

_SLICE_S = 0.1
_SURELY = 0.5  # an item takes a request or two: one for where it lies, one for what is in it
_ITEM_BYTES = 2**20  # no record has the size of an item: where ones of a MiB could be held up, nothing is told
_STEPS = ("epoch0_step_mean_s", "epoch0_step_s")  # the epoch that reads the medium in every state of the page cache


@dataclass(frozen=True)
class _Asked:
    """What one trial asked of its medium, in items, and what that lets pass in a second."""

    medium: str
    requests: float
    read_bytes: float | None  # None: no limit on bytes
    a_second: float
    at_once: float

    @property
    def may_be_felt(self) -> bool:
        """Whether it asked for half of either limit or more, at a time or at once."""
        by_bytes = [] if self.read_bytes is None else [self.read_bytes / _ITEM_BYTES]
        passes = _SURELY * min([self.requests, *by_bytes])
        return self.a_second >= passes or self.at_once >= passes * _SLICE_S


def not_felt(records: Sequence[Record]) -> list[str]:
    """In words, each emulated medium that has probably slowed none of these trials."""
    by_medium: dict[str, list[_Asked]] = {}
    for asked in filter(None, map(_asked, records)):
        by_medium.setdefault(asked.medium, []).append(asked)
    return [
        _words(medium, min(each.requests for each in several))
        for medium, several in by_medium.items()
        if not any(each.may_be_felt for each in several)
    ]


def _asked(record: Record) -> _Asked | None:
    """None where there is no emulated medium, where memory held the data, or where the record does not tell."""
    medium, batch = record.settings.get(EMULATED), record.settings.get("workload.batch")
    step_s = next((record.metrics[name] for name in _STEPS if record.metrics.get(name)), None)
    requests = _limit(record, "read_iops")
    if reads(record.settings.get(CACHE)) == NEVER:
        return None
    if medium is None or batch is None or step_s is None or requests is None:
        return None
    workers = record.settings.get("workload.workers") or 0
    return _Asked(str(medium), requests, _limit(record, "read_bps"), batch / step_s, batch * max(1, workers))


def _limit(record: Record, name: str) -> float | None:
    """A limit of the medium, in a second, as the trial had it."""
    settled = record.facts.get("settled") or {}
    limits = (settled.get("storage") or {}).get("limits")
    found = limits.get(name) if isinstance(limits, Mapping) else None
    return float(found) if found else None


def _words(medium: str, requests: float) -> str:
    of = f"the {requests:g} requests a second and {int(requests * _SLICE_S)} at once"
    return f"the emulated {medium} probably slowed nothing: less than half of {of} that it lets pass were asked for"
