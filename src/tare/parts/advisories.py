"""What is known to be wrong with container runtimes of certain versions (faults.md S16): advice, never an alarm."""

from __future__ import annotations

import re

from tare.host import Host

_VERSION = re.compile(r"\brunc version (\d+)\.(\d+)\.(\d+)")
_ESCAPE_2024 = (1, 1, 12)
_ESCAPE_2025 = {(1, 2): (1, 2, 8)}  # the older branch got the fix too; all others with 1.3.3
_ESCAPE_2025_NEWEST = (1, 3, 3)


def runc_advice(version_text: str) -> list[str]:
    """Sentences about the version that `runc --version` names; none where it names none."""
    found = _VERSION.search(version_text)
    if found is None:
        return []
    version = (int(found[1]), int(found[2]), int(found[3]))
    fixed_2025 = _ESCAPE_2025.get(version[:2], _ESCAPE_2025_NEWEST)
    known = []
    if version < _ESCAPE_2024:
        known.append("CVE-2024-21626")
    if version < fixed_2025:
        known.append("CVE-2025-31133")
    if not known:
        return []
    number = ".".join(found.groups())
    return [
        f"runc {number} is of a version in which a hostile image can leave the container ({', '.join(known)}). "
        "Distributions mend old versions without a new number, so look at theirs; run only images that you trust."
    ]


def advice(host: Host) -> list[str]:
    """What to say about the runtime of this host; nothing where it has none."""
    asked = host.run(["runc", "--version"])
    return runc_advice(asked.out) if asked.code == 0 else []
