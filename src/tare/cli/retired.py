"""Names of verbs and options that tare had before: each is refused, with the name that it has now."""

from __future__ import annotations

import re

VERBS = {
    "check": "`tare doctor` checks this device, `tare plan STUDY` whether it can run a study",
    "analyse": "the topic stands behind the store: `tare show STORE energy`",
}

# In the commands that kept stores recommend (`ends_in` of their study): pattern -> what it is now.
_IN_STORES = ((r"^analyse (\w+)", r"show \1"),)


def renewed(command: str) -> str:
    """A command of a kept store, with the names of today.

    >>> renewed("analyse energy --by platform")
    'show energy --by platform'
    """
    for old, new in _IN_STORES:
        command = re.sub(old, new, command)
    return command
