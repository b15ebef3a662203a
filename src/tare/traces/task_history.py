"""Tasks as perf tells of them, in the columns that `Roles` learns from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tare.traces.roles import Roles, Snapshot
from tare.traces.switches import Task


def roles_of(start: Snapshot, tasks: Iterable[Task]) -> Roles:
    """Who is who over the whole recording."""
    roles = Roles(start)
    roles.learn(_columns(start, sorted(tasks)))
    return roles


def _columns(start: Snapshot, tasks: Iterable[Task]) -> dict[str, Mapping[str, npt.NDArray[Any]]]:
    """perf does not name a new task: until it says otherwise it is called like the one that made it."""
    names = {thread: name for thread, name, _ in start.tasks}
    forks: list[tuple[int, int, int, bytes]] = []
    renames: list[tuple[int, int, bytes]] = []
    moves: list[tuple[int, int, bytes]] = []
    for task in tasks:
        if task.kind == "fork":
            names[task.tid] = names.get(task.parent, "")
            forks.append((task.t_ns, task.parent, task.tid, names[task.tid].encode()))
        elif task.kind == "attach":
            moves.append((task.t_ns, task.tid, task.word.encode()))
        elif task.kind in ("comm", "exec"):
            names[task.tid] = task.word
            renames.append((task.t_ns, task.tid, task.word.encode()))
    return {
        "sched_process_fork": _named(forks, ("t_ns", "parent_pid", "child_pid", "child_comm")),
        "task_rename": _named(renames, ("t_ns", "event_pid", "newcomm")),
        "cgroup_attach_task": _named(moves, ("t_ns", "event_pid", "dst_path")),
    }


def _named(rows: list[Any], names: tuple[str, ...]) -> dict[str, npt.NDArray[Any]]:
    *numbers, words = list(zip(*rows, strict=True)) or [()] * len(names)
    return {
        **{name: np.array(column, np.int64) for name, column in zip(names, numbers, strict=False)},
        names[-1]: np.array(words, dtype=object),
    }
