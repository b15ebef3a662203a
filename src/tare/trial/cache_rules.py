"""Rules of the verdict about the page cache: what a study asked for must have held in every epoch, not at the start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tare_inside.cold_epochs import COLD_SHARE


def cold_epochs_trouble(facts: Mapping[str, Any]) -> Iterable[str]:
    """Why the data set was not cold at the begin of every epoch, in sentences; nothing where it was not asked to be."""
    asked = facts.get("controls", {}).get("page_cache") or {}
    if asked.get("state") != "cold_every_epoch":
        return
    shares = (facts.get("cold_epochs") or {}).get("shares") or []
    if not shares:
        yield (
            "page_cache: cold_every_epoch was asked for, and no pass over the data was seen that it could be done "
            "before: only `torch_train` and PyTorch scripts with a DataLoader have such."
        )
    elif any(share is None for share in shares):
        yield "page_cache: the kernel did not tell the workload how much of the data set was left in memory."
    elif (most := max(shares)) > COLD_SHARE:
        epoch = shares.index(most)
        yield f"page_cache: {most:.1%} of the data set was still in memory when epoch {epoch} began."
