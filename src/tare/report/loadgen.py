"""What MLCommons LoadGen said of a trial, beside our own clock, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tare.records.model import Record
from tare.report.words import safe_text, time_text


def loadgen_sentences(record: Record) -> list[str]:
    """LoadGen's verdict with its reasons, and how far its clock is from ours; nothing where it did not drive."""
    outcome = record.facts.get("outcome")
    said = outcome.get("loadgen") if isinstance(outcome, Mapping) else None
    if not isinstance(said, Mapping):
        return []
    return [_verdict(said), *_gap(record)]


def _verdict(said: Mapping[str, Any]) -> str:
    reasons = said.get("reasons")
    why = ": " + " ".join(safe_text(reason) for reason in reasons) if isinstance(reasons, list) and reasons else "."
    return f"LoadGen says {safe_text(said.get('result'))} ({safe_text(said.get('scenario'))}){why}"


def _gap(record: Record) -> list[str]:
    needed = ("end_to_end_s", "loadgen_mean_s", "loadgen_gap_s")
    if not all(name in record.metrics for name in needed):
        return []
    ours_s, theirs_s, gap_s = (record.metrics[name] for name in needed)
    less_or_more = "less" if gap_s >= 0 else "more"
    return [
        f"On LoadGen's clock a sample takes {time_text(theirs_s)} on average, from its file to its answer "
        f"{time_text(ours_s)}: LoadGen sees {time_text(abs(gap_s))} {less_or_more}."
    ]
