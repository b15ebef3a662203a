"""The flushing layer once more, slow and obvious: dicts, lists, one write-back at a time, every latency kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tare.analysis.nvm.model import Layer

Write = tuple[int, tuple[int, int, int], str]  # t_ns, (dev, inode, page), tenant


@dataclass
class Share:
    """One tenant's part of the buffer, or all of it: pages from the oldest to the youngest."""

    capacity: float
    pages: list[object] = field(default_factory=list)
    marked: set[object] = field(default_factory=set)


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
    shares = [Share(math.inf if pages is None else pages) for _ in owners]
    found, heat = Outcome(), {}
    disk_ns, free_ns, served = round(layer.disk_s * 1e9), writes[0][0], 0

    for now_ns, key, tenant in writes:
        page = (key, tenant) if divided else key
        share = shares[owners.index(tenant)] if divided else shares[0]

        # What the idle disk did before this write-back came.
        while layer.destage.reserve and free_ns + disk_ns <= now_ns:
            in_turn = [(served + step) % len(shares) for step in range(1, len(shares) + 1)]
            short = [number for number in in_turn if _is_short(shares[number], layer)]
            if not short:
                break
            served = short[0]
            _coldest_out(shares[served], layer)
            found.disk_writes += 1
            free_ns += disk_ns
        free_ns = max(free_ns, now_ns)

        heat[page] = heat.get(page, 0) + 1
        latency_s, keeps_disk_busy = layer.nvm_s, False
        if page in share.pages:
            if layer.policy.lazy:
                share.marked.add(page)
            else:
                share.pages.remove(page)
                share.pages.append(page)
        elif len(share.pages) < share.capacity:
            share.pages.append(page)
        elif share.capacity == 0:
            latency_s, keeps_disk_busy = layer.disk_s, True
        elif layer.policy.by_heat and heat[page] <= heat[share.pages[0]]:
            heat[share.pages[0]] -= 1
            latency_s, keeps_disk_busy = layer.disk_s, True
        else:
            _coldest_out(share, layer)
            share.pages.append(page)
            found.disk_writes += 1
            latency_s += layer.disk_s if layer.destage.waits else 0
            keeps_disk_busy = True

        if latency_s == layer.disk_s:
            found.disk_writes += 1
        else:
            found.nvm_writes += 1
        free_ns += disk_ns if keeps_disk_busy else 0
        found.latencies_s.append(latency_s)
        found.by_tenant.setdefault(tenant, []).append(latency_s)
    found.left = sum(len(share.pages) for share in shares)
    return found


def _is_short(share: Share, layer: Layer) -> bool:
    if not share.pages or math.isinf(share.capacity):
        return False
    return share.capacity - len(share.pages) < max(1, round(layer.destage.reserve * share.capacity))


def _coldest_out(share: Share, layer: Layer) -> None:
    while layer.policy.lazy and share.pages[0] in share.marked:
        share.marked.remove(share.pages[0])
        share.pages.append(share.pages.pop(0))
    share.pages.pop(0)
