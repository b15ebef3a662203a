"""What a run spent its time on: the CPU, in the program and in the kernel, the wait for a core, a quota, all else.

The wait for a core is that of the process itself, as the kernel counted it for its first thread. Where that is not
known, it cannot be told from waiting for something else: both are `off`, the time without a core. Where the threads of
a program used more CPU time than the run took, neither is known.
"""

from __future__ import annotations

from collections.abc import Mapping

# Beside the metrics of a record; the quota's of a container that is not ours to put into a group are counted there.
OF_LAUNCHER = ("cpu_system_s", "run_queue_s", "cgroup_nr_throttled", "cgroup_throttled_s")
PERIOD_S = 0.1  # of a quota, as tare, Docker and Kubernetes set it


def stopped_s(metrics: Mapping[str, float], period_s: float = PERIOD_S) -> float:
    """How long its quota stopped it, at the most: the kernel adds up times of all cores, but counts a period once."""
    summed, periods = (metrics.get(f"cgroup_{name}", 0.0) for name in ("throttled_s", "nr_throttled"))
    return min(summed, periods * period_s) if periods else summed


def ledger(metrics: Mapping[str, float]) -> dict[str, float]:
    """Seconds of a run by what they went to; nothing where its CPU time was not counted."""
    wall_s, cpu_s = metrics.get("wall_s", 0.0), metrics.get("cpu_s", 0.0)
    if wall_s <= 0 or cpu_s <= 0:
        return {}
    system_s, run_queue_s = metrics.get("cpu_system_s"), metrics.get("run_queue_s")
    found = {"cpu": cpu_s} if system_s is None else {"user": cpu_s - system_s, "system": system_s}
    throttled_s = min(stopped_s(metrics), wall_s)
    if run_queue_s is not None:  # the kernel counts a stopped process as one that waits for a core
        found["queue"] = max(0.0, run_queue_s - throttled_s)
    if "cgroup_throttled_s" in metrics:
        found["throttled"] = throttled_s
    if cpu_s <= wall_s:
        found["off" if run_queue_s is None else "wait"] = max(0.0, wall_s - sum(found.values()))
    return found


def growth(slow: Mapping[str, float], quick: Mapping[str, float], more_s: float) -> dict[str, float]:
    """The share of each entry that both ledgers have in what all of them grew by, or in the `more_s` that the run took
    longer, where that is more: what no entry accounts for is the share of none.
    """
    grown = {name: max(0.0, slow[name] - quick[name]) for name in slow if name in quick}
    whole = sum(grown.values())
    return {name: more / max(whole, more_s) for name, more in grown.items()} if whole > 0 else {}
