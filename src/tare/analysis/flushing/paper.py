"""For which capacity the paper's improvements appear. It states neither capacity nor policy (S2, section 5, Fig. 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tare.analysis.flushing.model import Run, Writes

LOW, HIGH = 0.77, 0.90  # of the disk-only latency; the mean of its eight cases is 82 %


@dataclass(frozen=True)
class Band:
    """Where a policy's improvements cross the paper's, from the smallest buffer to the largest."""

    policy: str
    destage: str
    below: Run | None  # the largest buffer that does not reach them
    within: tuple[Run, ...]
    above: Run | None  # the smallest one that is beyond them


def bands(runs: Sequence[Run]) -> list[Band]:
    """One for each policy and way to destage."""
    found = []
    for policy, destage in dict.fromkeys((run.layer.policy.name, run.layer.destage.name) for run in runs):
        ours = [run for run in runs if (run.layer.policy.name, run.layer.destage.name) == (policy, destage)]
        ours = sorted((run for run in ours if run.layer.policy.buffers), key=capacity)
        if ours:
            below = [run for run in ours if run.latency.improvement < LOW]
            within = [run for run in ours if LOW <= run.latency.improvement <= HIGH]
            above = [run for run in ours if run.latency.improvement > HIGH]
            found.append(
                Band(policy, destage, below[-1] if below else None, tuple(within), above[0] if above else None)
            )
    return found


def capacity(run: Run) -> float:
    """Bytes of the buffer; one without a limit is larger than any."""
    return float("inf") if run.layer.nvm_bytes is None else run.layer.nvm_bytes


def pooled(runs: Sequence[Run], trace: str) -> Run:
    """The same layer over several traces, as one: their write-backs together."""
    tenants: dict[str, Writes] = {}
    for run in runs:
        for name, writes in run.tenants.items():
            tenants[name] = tenants.get(name, Writes()) + writes
    return Run(
        runs[0].layer,
        tenants,
        destaged=sum(run.destaged for run in runs),
        left=sum(run.left for run in runs),
        pages=runs[0].pages,
        trace=trace,
        duration_s=sum(run.duration_s for run in runs),
    )
