"""Whether what is measured now could be told apart from what a store holds: another kernel, another tare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tare.records.attempts import newest_usable
from tare.records.model import Record


def changed_since(records: Iterable[Record], begun: str, now: Mapping[str, str | None]) -> list[str]:
    """A sentence for each of `kernel` and `tare` that was another in these records; what is unknown has not changed."""
    before = newest_usable(records)
    kernels = {str(found["kernel"]) for each in before if "kernel" in (found := each.facts.get("device") or {})}
    versions = {each.tare_version for each in before if each.tare_version}
    pairs = (("the kernel", kernels, now.get("kernel")), ("tare", versions, now.get("tare")))
    return [
        f"{what} has changed since {begun} was begun: {', '.join(sorted(then))} then, {today} now."
        for what, then, today in pairs
        if today is not None and then - {today}
    ]
