"""Which part of a long sweep is taken: an eighth, another one each day; `make deep` takes all.

TARE_SWEEP=0..7 in the environment chooses the eighth; the end of a test run prints it.
"""

from __future__ import annotations

import datetime
import os

EIGHTHS = 8


def deep() -> bool:
    """Whether everything is wanted (`make deep`)."""
    return os.environ.get("TARE_DEEP", "") not in ("", "0")


def first_step(every: int = EIGHTHS) -> int:
    """The step to begin with, where only every so many-th is taken: from 1 to `every`, spread over the eighths."""
    return 1 + chosen() * every // EIGHTHS


def chosen() -> int:
    """The number of today's eighth, or the one that TARE_SWEEP names."""
    named = os.environ.get("TARE_SWEEP", "")
    return int(named) % EIGHTHS if named else datetime.datetime.now(datetime.UTC).toordinal() % EIGHTHS
