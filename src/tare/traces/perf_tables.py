"""The tables of the `perf` probe, from what it kept: rings of counters, and samples with call stacks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tare.traces.faults import cause_of
from tare.traces.formats import parse_event
from tare.traces.perf_script import Lost, Sample
from tare.traces.roles import Roles, Snapshot
from tare.traces.switches import Group, Ring, Slices, Told, binned
from tare.traces.task_history import roles_of

Named: TypeAlias = tuple[str, dict[str, Any]]

BIN_NS = 100_000_000
FAULTS = "page-faults"
IDLE = "idle"  # a core on which nothing ran
_ROWS_AT_ONCE = 50_000
_NEAR = 4  # functions of a stack that say why a page was touched


class Kept:
    """The counters' part of a recording, opened."""

    def __init__(self, folder: Path, meta_file: str) -> None:
        meta = json.loads((folder / meta_file).read_text())
        groups = [Group(tuple(one["ids"]), tuple(one["events"])) for one in meta["groups"]]
        told = meta.get("told") or {}
        event = Told(frozenset(told["ids"]), parse_event(told["format"])) if told.get("format") else None
        self.rings = [Ring(path, groups, event) for path in sorted(folder.glob("cpu*.ring"))]
        start = Snapshot.from_json(meta["roles"])
        tasks = [task for ring in self.rings for task in ring.tasks()]
        self.roles: Roles = roles_of(start, tasks)
        self._moments = [(0, thread) for thread, _, _ in start.tasks] + [(task.t_ns, task.tid) for task in tasks]
        self._moments += [(t_ns, thread) for t_ns, thread, _ in start.sightings]

    def threads(self, without: Iterable[str]) -> list[int]:
        """Every thread that ever had another role than these."""
        moments = np.array(sorted(set(self._moments)), np.int64).reshape(-1, 2)
        roles = self.roles.of(moments[:, 1], moments[:, 0])
        return sorted(set(moments[~np.isin(roles.astype(str), list(without)), 1].tolist()))

    def role_of(self, slices: Slices) -> np.ndarray[Any, Any]:
        roles = self.roles.of(slices.tid, slices.t_ns)
        roles[slices.tid == 0] = IDLE
        return roles


def counters(kept: Kept) -> dict[str, Any]:
    """Sums over all CPUs by bin, role and event: the `counters` table."""
    sums: dict[tuple[int, str, str], list[float]] = {}
    for ring in kept.rings:
        for slices in ring.slices():
            table = binned(slices, kept.role_of(slices), BIN_NS)
            columns = (table[name].tolist() for name in table)
            for t_ns, role, event, *values in zip(*columns, strict=True):
                known = sums.setdefault((t_ns, role, event), [0, 0.0, 0.0])
                for place, value in enumerate(values):
                    known[place] += value
    ordered = sorted(sums.items())
    return {
        "t_ns": np.array([key[0] for key, _ in ordered], np.int64),
        "role": [key[1] for key, _ in ordered],
        "event": [key[2] for key, _ in ordered],
        "count": np.array([values[0] for _, values in ordered], np.int64),
        "time_enabled": np.array([values[1] for _, values in ordered], np.float64),
        "time_running": np.array([values[2] for _, values in ordered], np.float64),
    }


def sample_tables(samples: Iterable[Sample | Lost], roles: Roles | None) -> Iterator[Named]:
    """`faults` in pieces, then `callgraphs`, then how many samples were lost."""
    faults: list[Sample] = []
    graphs: Counter[tuple[int, str, str, str]] = Counter()
    times: dict[tuple[int, str, str, str], int] = {}
    lost = 0
    for sample in samples:
        if isinstance(sample, Lost):
            lost += sample.events
        elif sample.event == FAULTS:
            faults.append(sample)
            if len(faults) >= _ROWS_AT_ONCE:
                yield "faults", _faults(faults, roles)
                faults = []
        else:
            stack = ";".join(frame.function for frame in reversed(sample.stack))
            key = (sample.tid, sample.comm, sample.event, stack)
            graphs[key] += 1
            times[key] = sample.t_ns
    if faults:
        yield "faults", _faults(faults, roles)
    if graphs:
        yield "callgraphs", _graphs(graphs, times, roles)
    if lost:
        yield "lost", {"what": ["samples"], "events": np.array([lost], np.int64)}


def _faults(samples: list[Sample], roles: Roles | None) -> dict[str, Any]:
    tids = np.array([sample.tid for sample in samples], np.int64)
    t_ns = np.array([sample.t_ns for sample in samples], np.int64)
    first = [sample.stack[0] if sample.stack else None for sample in samples]
    return {
        "t_ns": t_ns,
        "cpu": np.array([sample.cpu for sample in samples], np.int32),
        "pid": np.array([sample.pid for sample in samples], np.int64),
        "comm": [sample.comm for sample in samples],
        "role": _roles(roles, tids, t_ns),
        "file": ["" if frame is None else frame.file for frame in first],
        "function": ["" if frame is None else frame.function for frame in first],
        "cause": [
            cause_of(sample.mapping, tuple(frame.function for frame in sample.stack[:_NEAR])) for sample in samples
        ],
        "address": np.array([sample.address for sample in samples], np.uint64),
        "mapping": [sample.mapping for sample in samples],
    }


def _graphs(graphs: Counter[Any], times: dict[Any, int], roles: Roles | None) -> dict[str, Any]:
    """Stacks of one event and task, summed up; outermost function first, joined by `;`."""
    keys = list(graphs)
    found = _roles(
        roles, np.array([key[0] for key in keys], np.int64), np.array([times[key] for key in keys], np.int64)
    )
    sums: Counter[tuple[str, str, str, str]] = Counter()
    for (_, comm, event, stack), role, count in zip(keys, found, graphs.values(), strict=True):
        sums[event, role, comm, stack] += count
    ranked = sums.most_common()
    columns = [[key[place] for key, _ in ranked] for place in range(4)]
    return {
        **dict(zip(("event", "role", "comm", "stack"), columns, strict=True)),
        "count": np.array([count for _, count in ranked], np.int64),
    }


def _roles(roles: Roles | None, tids: np.ndarray[Any, Any], t_ns: np.ndarray[Any, Any]) -> list[str]:
    """The role of each; `host` for all where nobody noted who is who."""
    return ["host"] * len(tids) if roles is None else [str(role) for role in roles.of(tids, t_ns).tolist()]
