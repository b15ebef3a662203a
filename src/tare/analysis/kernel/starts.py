"""The write-backs of a traced trial, with their episodes and without those that were tare's own doing."""

from __future__ import annotations

from tare.analysis.kernel.model import Columns, Traced
from tare.traces.episodes import TABLES, started

PROBE = "ftrace"


def starts_of(trial: Traced) -> Columns | None:
    """One row a write-back, in order of time; None where the trial has no such event."""
    return started({name: table for name in TABLES if (table := trial.table(PROBE, name)) is not None})
