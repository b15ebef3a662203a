"""The pytest fixture `tare_weigh`: a test fails on a proven slowdown, and says so where nothing can be told.

def test_new_is_no_slower(tare_weigh):
    tare_weigh(new_loss, against=old_loss, margin=0.05)
"""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tare.api.results import Result

BLOCKS = 12
BLOCK_S = 0.04  # of calls of one side in a block
_SEED = 0


class CannotTell(UserWarning):
    """Neither a slowdown nor its absence is shown."""


@pytest.fixture
def tare_weigh() -> Callable[..., Result]:
    """A function that weighs, fails the test where the verdict is `slower`, and warns where it cannot tell.

    With `against`, another callable, both are called in this process, in turns. Without it, the work is weighed on bare
    metal against a container, as `tare.weigh` does.
    """
    return weigh_and_judge


def weigh_and_judge(
    work: Any, against: Callable[[], Any] | None = None, *, margin: float = 0.05, blocks: int = BLOCKS, **options: Any
) -> Result:
    from tare.api.studies import weigh

    result = (
        weigh(work, margin=margin, **options) if against is None else in_turns(work, against, margin, blocks, **options)
    )
    for each in result.comparisons:
        if each.verdict == "slower" and (each.effect or 0.0) > margin:
            pytest.fail(str(result), pytrace=False)
        if each.verdict == "cannot_tell":
            warnings.warn(CannotTell(str(result)), stacklevel=2)
    return result


def in_turns(new: Callable[[], Any], old: Callable[[], Any], margin: float, blocks: int, calls: int = 0) -> Result:
    """Both sides in shuffled order in each block; the unit is the mean of a side's calls in a block."""
    from tare.analysis.compare import compare
    from tare.analysis.model import Measurement, Weighing
    from tare.api.results import Result

    sides, chance = {"new": new, "old": old}, random.Random(_SEED)
    calls = calls or max(_calls_of(each) for each in sides.values())
    found: list[Measurement] = []
    for block in range(blocks):
        for level in chance.sample(list(sides), 2):
            seconds = _timed(sides[level], calls)
            found.append(Measurement(level, seconds, str(block), place=float(len(found))))
    comparisons = tuple(compare(found, against="old", margin=margin, metric="call_s"))
    counts = {"planned": len(found), "ok": len(found)}
    return Result(
        Weighing(
            study="tare_weigh", question="new vs old", by="side", against="old", metric="call_s",
            comparisons=comparisons, counts=counts, measurements=tuple(found),
        )
    )  # fmt: skip


def _calls_of(work: Callable[[], Any]) -> int:
    """So many that they take the time of a block; what is called first also warms it up."""
    work()
    once = _timed(work, 1)
    return max(1, min(100_000, round(BLOCK_S / max(once, 1e-7))))


def _timed(work: Callable[[], Any], calls: int) -> float:
    begin = time.perf_counter()
    for _ in range(calls):
        work()
    return (time.perf_counter() - begin) / calls
