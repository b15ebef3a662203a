"""A side: a platform and a workload, each with its fields; and the rehearsal, in which each side is tried once.

Both halves of tare need the two rules below: whoever plans and runs, and whoever reads the store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

REHEARSAL = "r"  # how the id of a rehearsal begins; that of a trial is hexadecimal
_ID = re.compile(rf"{REHEARSAL}[0-9a-f]+")


def is_rehearsal(trial: str) -> bool:
    """Whether this is the id of a rehearsal: the run of a side before the blocks, which is no data.

    `Store.records` and `Store.states` leave rehearsals out, so that no reader counts one; `Store.rehearsals` has them.
    """
    return _ID.fullmatch(trial) is not None


def side_of(settings: Mapping[str, Any]) -> str:
    """What a rehearsal stands for, as one text: the settings of the platform and of the workload, and no others."""
    own = {name: value for name, value in settings.items() if name.partition(".")[0] in ("platform", "workload")}
    return json.dumps(own, sort_keys=True, default=str)
