"""Every reader of somebody else's bytes on inputs that were changed at random: a sentence, never a traceback.

2,000 inputs of each kind here, fewer of those that take milliseconds; TARE_FUZZ names another number, and `make deep`
takes 200,000. `make fuzz` also writes what they cost.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

from fuzz_targets import CORPUS, TARGETS, Found, attack
from tare.base.errors import TareError

MOST_S, MOST_BYTES = 30.0, 500 << 20
PLAIN = 2_000
SLOW = {"trace.dat": 100, "pack": 100, "text trace": 200, "study": 200, "marks": 200, "work folder": 200,
        "table, CSV": 50, "table, JSON lines": 50, "table, Parquet": 20, "benchmark file": 50,
        "resealed trial": 50}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
def test_damaged_input_is_a_sentence(target: str, deep: bool):
    count = int(os.environ.get("TARE_FUZZ") or 0) or (200_000 if deep else SLOW.get(target, PLAIN))
    found = Found(target)
    for first in range(0, count, 200):  # what fails is named by its number
        found.add(attack(target, min(200, count - first), first))
    assert found.wrong == [], "\n".join(found.wrong[:20])
    assert found.inputs == count
    assert found.worst_cpu_s < MOST_S, f"input {found.worst_input}"
    assert found.worst_s < 12 * MOST_S  # by the clock, beside all other tests
    assert found.grown_bytes < MOST_BYTES


@pytest.mark.parametrize(("target", "data"), [(name, data) for name, several in CORPUS.items() for data in several])
def test_what_was_found_once_stays_a_sentence(target: str, data: bytes, tmp_path: Path):
    before_s = time.process_time()
    with suppress(TareError):
        TARGETS[target][0](data, tmp_path)
    assert time.process_time() - before_s < MOST_S / 4
