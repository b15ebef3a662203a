"""Which attempt speaks for a trial: one rule, for whoever reads records."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tare.records.model import USABLE, Record


def is_usable(record: Record) -> bool:
    return record.state in USABLE


def newest_attempts(records: Iterable[Record], may_speak: Callable[[Record], bool] = is_usable) -> list[Record]:
    """One attempt of each trial: the newest that may speak for it, else the newest. Attempts come oldest first."""
    chosen: dict[str, tuple[Record, bool]] = {}
    for record in records:
        may = may_speak(record)
        if record.trial not in chosen or may or not chosen[record.trial][1]:
            chosen[record.trial] = (record, may)
    return [record for record, _ in chosen.values()]


def newest_usable(records: Iterable[Record], may_speak: Callable[[Record], bool] = is_usable) -> list[Record]:
    """The same, of those trials only that have an attempt which may speak."""
    return [record for record in newest_attempts(records, may_speak) if may_speak(record)]
