"""The settings that say from where a trial reads its data, and when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

CACHE, EMULATED, WORKERS = "control.page_cache.state", "control.storage.emulate", "workload.workers"
ALWAYS_COLD, COLD, WARM = "cold_every_epoch", "cold", "warm"

When: TypeAlias = Literal["in every epoch", "in the first epoch", "never"]
EVERY: When = "in every epoch"
FIRST: When = "in the first epoch"  # later ones find in the page cache what it has read
NEVER: When = "never"  # all of it was in the page cache before
_WHEN: Mapping[object, When] = {ALWAYS_COLD: EVERY, COLD: FIRST, WARM: NEVER}


def reads(cache: object) -> When | None:
    """When the medium is read under this state of the page cache; None where it was left alone, and nobody knows."""
    return _WHEN.get(cache)
