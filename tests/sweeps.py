"""Which part of a long sweep is taken: an eighth, another one each day; `make deep` takes all.

TARE_SWEEP=0..7 in the environment chooses the eighth; the end of a test run prints it. `python tests/sweeps.py` prints
the number alone: tools/test names it once, so that all parts of a run take the same eighth, also after midnight.
"""

from __future__ import annotations

import os
import sys
import time

EIGHTHS = 8
_DAY_S = 86_400


def deep() -> bool:
    """Whether everything is wanted (`make deep`)."""
    return os.environ.get("TARE_DEEP", "") not in ("", "0")


def first_step(every: int = EIGHTHS) -> int:
    """The step to begin with, where only every so many-th is taken: from 1 to `every`, spread over the eighths."""
    return 1 + chosen() * every // EIGHTHS


def chosen() -> int:
    """The number of today's eighth, or the one that TARE_SWEEP names."""
    named = os.environ.get("TARE_SWEEP", "")
    return (int(named) if named else int(time.time()) // _DAY_S) % EIGHTHS


if __name__ == "__main__":
    sys.stdout.write(f"{chosen()}\n")
