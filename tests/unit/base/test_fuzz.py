"""Every reader of somebody else's bytes on inputs that were changed at random: a sentence, never a traceback.

2,000 inputs of each kind here; TARE_FUZZ names another number (`make fuzz`), and `make deep` takes 200,000.
"""

from __future__ import annotations

import os
import resource
import time

import pytest

from fuzz_targets import TARGETS, attack

COUNT = int(os.environ.get("TARE_FUZZ") or (200_000 if os.environ.get("TARE_DEEP") else 2_000))
MOST_S, MOST_BYTES = 10.0, 500 << 20
SLOW = {
    "trace.dat": 20,
    "pack": 20,
    "text trace": 10,
    "study": 10,
    "marks": 10,
    "work folder": 10,
}  # these take milliseconds each: fewer, and other ones each day


@pytest.mark.parametrize("target", TARGETS)
def test_damaged_input_is_a_sentence(target: str):
    start = int(time.time()) // 86_400 * 1_000_000  # other ones each day; what fails is named by its number
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    begun, wrong = time.monotonic(), []
    count = COUNT if COUNT != 2_000 else COUNT // SLOW.get(target, 1)
    for first in range(start, start + count, 200):
        at = time.monotonic()
        wrong += attack(target, min(200, start + count - first), first)
        assert time.monotonic() - at < 200 * MOST_S
    assert wrong == [], "\n".join(wrong[:20])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before < MOST_BYTES
    assert time.monotonic() > begun
