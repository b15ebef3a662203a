"""The flushing layer once more, slow and obvious: a list of pages, one write-back at a time, every latency kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tare.kernel.nvm.model import Layer

Write = tuple[int, tuple[int, int, int], str]  # t_ns, (dev, inode, page), tenant


@dataclass
class Outcome:
    """What a reference run has found."""

    latencies_s: list[float] = field(default_factory=list)
    by_tenant: dict[str, list[float]] = field(default_factory=dict)
    nvm_writes: int = 0
    disk_writes: int = 0
    left: int = 0

    @property
    def p99_s(self) -> float:
        return sorted(self.latencies_s)[math.ceil(0.99 * len(self.latencies_s)) - 1]


def reference(writes: Sequence[Write], layer: Layer, page_bytes: int, divided: bool = False) -> Outcome:
    """Replay the writes through the layer."""
    tenants = sorted({tenant for _, _, tenant in writes})
    owners = tenants if divided else ["all"]
    pages = layer.pages(page_bytes, len(owners))
    capacity = math.inf if pages is None else pages
    shares: dict[str, list[object]] = {owner: [] for owner in owners}  # from the oldest page to the youngest
    found = Outcome()

    for _, page, tenant in writes:
        share = shares[tenant if divided else "all"]
        latency_s = layer.nvm_s
        if page in share:
            share.remove(page)
            share.append(page)
        elif len(share) < capacity:
            share.append(page)
        elif capacity == 0:
            latency_s = layer.disk_s
        else:
            share.pop(0)
            share.append(page)
            found.disk_writes += 1
            latency_s += layer.disk_s if layer.destage.waits else 0

        if latency_s == layer.disk_s:
            found.disk_writes += 1
        else:
            found.nvm_writes += 1
        found.latencies_s.append(latency_s)
        found.by_tenant.setdefault(tenant, []).append(latency_s)
    found.left = sum(map(len, shares.values()))
    return found
