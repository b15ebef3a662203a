"""This device, owned by one run: locked, restored before its first trial and after its last one."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from tare.base.errors import NotRestoredError, ObstacleError
from tare.base.files import state_dir
from tare.base.host import Host
from tare.base.rulings import obstacle
from tare.trial.device import DeviceLock, device_id, private_folder
from tare.trial.undo.guardian import Guardian
from tare.trial.undo.journal import Journal
from tare.trial.undo.restoration import left_by_dead_probes, restore

LEAST_DESCRIPTORS = 64  # a run on bare metal takes 22


@contextmanager
def owned_device(
    host: Host, say: Callable[[str], None], run: str, wait_s: float = 0.0
) -> Iterator[tuple[Journal, Path]]:
    """This device, ours alone: what a dead run left on it is put back first, and what we left at the end."""
    if (permitted := resource.getrlimit(resource.RLIMIT_NOFILE)[0]) < LEAST_DESCRIPTORS:
        why = f"a run needs {LEAST_DESCRIPTORS} open files, and this shell permits {permitted}: "
        why += "`ulimit -n 256` is enough."
        raise ObstacleError("nothing was run:", [obstacle("needs.descriptors", why)])
    state, device = state_dir(), device_id(host)
    with DeviceLock(state, device, run, wait_s=wait_s, say=say) as lock:
        if lock.overruled:
            say(lock.overruled)
        journal, scratch = Journal(state / "devices" / device, run), state / "scratch"
        put_back_all(host, journal, scratch, say)
        with Guardian(private_folder(state / "devices" / device) / "guardian.log"):
            try:
                yield journal, scratch
            finally:
                put_back_all(host, journal, scratch, say)


def put_back_all(host: Host, journal: Journal, scratch: Path, say: Callable[[str], None]) -> None:
    """The journal is the truth about what is left on the device; if it cannot be emptied, nothing more may run."""
    for sentence in chain(*left_by_dead_probes(host)):
        say(sentence)
    if not journal.pending():
        return
    report = restore(host, journal, scratch=scratch)
    for sentence in report.good_news():  # the bad news is the error, once
        say(sentence)
    if not report.clean:
        raise NotRestoredError("\n".join([*report.foreign, *report.failed]), force=bool(report.foreign))
